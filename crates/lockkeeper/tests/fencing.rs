//! P7: with the fence on the resource no acknowledged update is ever lost; and the same workers without it lose some, so
//! that the first half means something.

#[path = "../examples/fencing.rs"]
mod fencing;

#[tokio::test]
async fn without_the_fence_paused_holders_lose_updates() {
    let account = fencing::add_up(false).await.unwrap();
    assert!(account.counted < account.acknowledged, "{account:?}: the pauses did no harm, so nothing is shown");
}

#[tokio::test]
async fn with_the_fence_no_acknowledged_update_is_lost() {
    let account = fencing::add_up(true).await.unwrap();
    assert_eq!(account.counted, account.acknowledged, "{account:?}");
    assert!(account.refused > 0 && account.acknowledged > 0, "{account:?}: nobody was refused, so nothing is shown");
}
