//! How a request finds the server of its key in a cluster, and follows the key while its slot moves. A server that redirects a request has
//! done nothing, so sending it elsewhere is never a second time.
//!
//! **Tokens of a slot that moves.** A grant needs the lock's key and the counter of tokens, which may be at different servers just then. So the grant
//! leaves the token open, and the client draws it afterwards, wherever the counter is. An earlier holder drew its token before it released the
//! lock, and a later one draws later: tokens of a name grow.

use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, Value};

use super::cluster::Cluster;
use super::node::Node;
use super::request::{Failed, Request, Site};
use super::slot_map::redirected;
use super::{error, script};
use crate::error::{Error, ErrorKind};
use crate::runtime;

/// So often a request follows a redirection; its own time limit ends it earlier.
const REDIRECTIONS: u32 = 32;

/// What a script answers for a token that the client draws after the grant; lib/token has it, too.
const DRAWN_LATER: i64 = -9_007_199_254_740_992;

/// So often it waits for a slot that is half moved. Not for long: given up by its sender while it waits here, it would seem to be under way.
const PATIENT: u32 = 8;

impl Cluster {
    /// Sends to the server of the slot.
    pub(super) async fn send(&self, slot: u16, sent: &Request<'_>) -> std::result::Result<Value, Failed> {
        let mut node = self.serving(slot).await.map_err(Failed::Unsent)?;
        let (mut asking, mut moving, mut waited) = (false, false, 0);
        for _ in 0..REDIRECTIONS {
            let mut unanswered = Unanswered(Some(self));
            let answer = node.send(&Request { asking, moving, ..*sent }).await;
            unanswered.0 = None;
            let error = match answer {
                Err(Failed::Refused(error)) => error,
                Ok(answer) if moving => return self.with_token(slot, sent, answer).await,
                // It does not count, and so needs no token of its own.
                Err(Failed::Unreplicated { answer, acknowledged, wanted, who }) if moving => {
                    return Err(Failed::Unreplicated { answer: closed(answer, Value::Int(1)), acknowledged, wanted, who });
                }
                Err(failed) => {
                    // It may be gone for good.
                    self.refresh_later();
                    return Err(failed);
                }
                answer => return answer,
            };
            let was_moving = moving;
            (asking, moving) = (false, false);
            match error.code() {
                Some("MOVED") => node = self.moved(slot, &node, error)?,
                Some("ASK") if sent.follows => {
                    let Some(address) = redirected(&error, node.address()) else { return Err(Failed::Refused(error)) };
                    (node, asking, moving) = (self.node(&address), true, true);
                }
                // The lock is here, and its counter is not. Nothing was granted before the counter was looked for.
                _ if error::is_half_moved(&error) && sent.follows && sent.counter.is_some() && !was_moving => moving = true,
                // Each of them can be asked for by itself.
                Some("TRYAGAIN") if sent.follows && sent.is_of_many() => return Err(Failed::Refused(error)),
                // Some of what it touches has moved, some has not: soon all will have.
                code if matches!(code, Some("ASK" | "TRYAGAIN")) || error::is_half_moved(&error) => {
                    waited += 1;
                    if waited > PATIENT {
                        let in_the_middle = error::is_half_moved(&error) && !sent.looks_first;
                        return Err(if in_the_middle { Failed::Unknown(error) } else { Failed::Refused(error) });
                    }
                    let pause = runtime::jitter(Duration::from_millis(2), Duration::from_millis(20));
                    self.runtime.sleep_until(self.runtime.now().plus(pause)).await;
                    node = self.serving(slot).await.map_err(Failed::Unsent)?;
                }
                Some("READONLY" | "CLUSTERDOWN" | "MASTERDOWN" | "LOADING") => {
                    self.refresh_later();
                    return Err(Failed::Refused(error));
                }
                _ => return Err(Failed::Refused(error)),
            }
        }
        let message = format!("gave up on slot {slot} after {REDIRECTIONS} redirections");
        Err(Failed::Unsent(Error::new(ErrorKind::Unavailable, message)))
    }

    /// The server to which a slot has moved.
    fn moved(&self, slot: u16, from: &Arc<Node>, error: RedisError) -> std::result::Result<Arc<Node>, Failed> {
        let Some(address) = redirected(&error, from.address()) else { return Err(Failed::Refused(error)) };
        self.learn(slot, &address);
        self.refresh_later();
        Ok(self.node(&address))
    }

    /// The answer with the token that its grant left open.
    async fn with_token(&self, slot: u16, sent: &Request<'_>, answer: Value) -> std::result::Result<Value, Failed> {
        let Some(counter) = sent.counter.filter(|_| is_open(&answer)) else { return Ok(answer) };
        let (keys, arguments) = ([counter], |_: &Site<'_>| Vec::new());
        let drawing = Request::script(&script::TOKEN, &keys, &arguments).durable(sent.durable).following(true);
        // It was granted: whatever goes wrong now, the caller has to take it back.
        match Box::pin(self.send(slot, &drawing)).await {
            Ok(token) => Ok(closed(answer, token)),
            Err(Failed::Refused(error)) => Err(Failed::Unknown(error)),
            Err(Failed::Unsent(error)) => Err(Failed::Unsent(indeterminate(error))),
            Err(Failed::Unreplicated { answer: token, acknowledged, wanted, who }) => {
                Err(Failed::Unreplicated { answer: closed(answer, token), acknowledged, wanted, who })
            }
            Err(failed) => Err(failed),
        }
    }
}

fn is_open(answer: &Value) -> bool {
    matches!(answer, Value::Array(words) if words.contains(&Value::Int(DRAWN_LATER)))
}

/// The answer with this token in the place that was left open.
fn closed(answer: Value, token: Value) -> Value {
    match answer {
        Value::Array(words) => {
            let close = |word| if word == Value::Int(DRAWN_LATER) { token.clone() } else { word };
            Value::Array(words.into_iter().map(close).collect())
        }
        answer => answer,
    }
}

/// The error for a lock that was granted without a token.
fn indeterminate(cause: Error) -> Error {
    Error::new(ErrorKind::Indeterminate, "the lock was granted, but its token could not be drawn while its slot moves")
        .with_source(cause)
}

/// A request under way. If its sender gives it up, its server may be gone and another may serve the slot.
struct Unanswered<'a>(Option<&'a Cluster>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(cluster) = self.0 {
            cluster.refresh_later();
        }
    }
}
