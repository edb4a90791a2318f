//! Fencing tokens of a name that both share: each new hold has a larger one, whoever takes it.

use lockkeeper::Client;

use crate::object::Object;
use crate::world::{Thread, World};

/// A client of ours that counts tokens where Redisson counts them.
async fn counting(world: &World) -> Client {
    Client::connect(format!("{}?tokens=redisson", world.url())).await.expect("a server")
}

async fn their_token(java: &Thread, name: &str) -> u64 {
    let token = java.ask(format!("fenced lockAndGetToken {name}")).await.as_u64().expect("a token");
    assert_eq!(java.ask(format!("fenced getToken {name}")).await, token);
    java.ask(format!("fenced unlock {name}")).await;
    token
}

async fn our_token(client: &Client, name: &str) -> u64 {
    let guard = client.mutex(name).lock().await.unwrap();
    let token = guard.token().unwrap().number();
    guard.release().await.unwrap();
    token
}

pub(crate) async fn tokens_grow_across_both(world: World, object: Object) {
    let (name, client) = (object.fresh(&world).await, counting(&world).await);
    let (one, two) = (world.java.thread("one"), world.java.thread("two"));
    let mut tokens = Vec::new();
    for _ in 0..10 {
        tokens.push(their_token(&one, &name).await);
        tokens.push(our_token(&client, &name).await);
        tokens.push(our_token(&client, &name).await);
        tokens.push(their_token(&two, &name).await);
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

/// The same when both press: whoever holds it writes its token down.
pub(crate) async fn tokens_grow_across_both_in_a_crowd(world: World, object: Object) {
    let (name, client) = (object.fresh(&world).await, counting(&world).await);
    let tokens = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut crowd = Vec::new();
    for number in 0..4 {
        let (java, word, list) = (world.java.thread(&format!("t{number}")), name.clone(), std::sync::Arc::clone(&tokens));
        crowd.push(tokio::spawn(async move {
            for _ in 0..25 {
                let token = java.ask(format!("fenced lockAndGetToken {word}")).await.as_u64().expect("a token");
                list.lock().unwrap().push(token);
                java.ask(format!("fenced unlock {word}")).await;
            }
        }));
        let (client, name, list) = (client.clone(), name.clone(), std::sync::Arc::clone(&tokens));
        crowd.push(tokio::spawn(async move {
            for _ in 0..25 {
                let guard = client.mutex(&name).lock().await.unwrap();
                list.lock().unwrap().push(guard.token().unwrap().number());
                guard.release().await.unwrap();
            }
        }));
    }
    for task in crowd {
        task.await.unwrap();
    }
    let tokens = tokens.lock().unwrap();
    assert!(tokens.len() == 200 && tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

/// The control, and why all peers of such a name must set the option: counted apart, a later hold of Java's has a smaller token.
pub(crate) async fn tokens_counted_apart_do_not_grow(world: World, object: Object) {
    let (name, java) = (object.fresh(&world).await, world.java.thread("one"));
    let first = our_token(&world.client, &name).await;
    assert!(their_token(&java, &name).await < first);
}
