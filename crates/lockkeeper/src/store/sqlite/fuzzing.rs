//! A door to what is made of rows and datagrams.

use super::liveness::PeerId;
use super::message;
use crate::backend::ClientCard;
use crate::store::kit::rows::HeadRow;

/// The body of a head row, a card of a client, the id of a peer, or a datagram of another process.
pub(crate) fn text(text: &str) {
    let row = serde_json::from_str::<HeadRow<PeerId>>(text);
    if let Ok(row) = row {
        assert!(super::rows::body(&row).is_ok(), "what is read can be written");
    }
    let _ = (serde_json::from_str::<ClientCard>(text), text.parse::<PeerId>());
    if let Some((name, wake)) = message::decode(text) {
        assert_eq!(message::decode(&message::encode(&name, wake)), Some((name, wake)), "a datagram is read back");
    }
}
