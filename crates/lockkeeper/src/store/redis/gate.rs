//! A gate in Redis, for resources that live there or beside it.

use std::sync::Arc;

use super::locks::text;
use super::request::{Failed, Request, Site};
use super::script::{self, Lua};
use super::transport::Transport;
use super::{Config, parsed};
use crate::error::{Error, ErrorKind, Result};
use crate::fence::{Gate, Watermark};
use crate::owner::WireOwner;
use crate::runtime::{BoxFuture, Runtime};
use crate::token::Token;

/// A [gate](crate::fence) in Redis: the last token of a resource at `lockkeeper:fence:{RESOURCE}`, each decision one script.
///
/// With `?replicas=` or `?aof=` in its URL a token has entered when the replicas or the disk know it; until then `enter` is
/// [`ErrorKind::Unreplicated`], and may be called again.
///
/// The check and the write to the resource are two steps unless the resource looks at that key itself: a resource in the same
/// Redis can do so in its own script or transaction.
#[derive(Debug)]
pub struct RedisGate {
    transport: Arc<Transport>,
}

impl RedisGate {
    /// A gate on the server that `config` names; it connects when it is first asked.
    #[must_use]
    pub fn new(config: Config, runtime: &Runtime) -> Self {
        Self { transport: Transport::new(config, runtime.clone()) }
    }

    /// Runs one script; the decision is the one that every gate makes.
    async fn ask(
        &self,
        script: &Lua,
        resource: &str,
        token: Token,
        decide: impl FnOnce(Watermark) -> Result<()> + Send,
    ) -> Result<()> {
        let key = format!("lockkeeper:fence:{{{resource}}}");
        let arguments = vec![text(token.number()), text(token.owner())];
        let (keys, arguments) = ([key.as_str()], |_: &Site<'_>| arguments.clone());
        let sent = Request::script(script, &keys, &arguments).durable(self.transport.config().durability);
        let answer = self.transport.send(keys[0], &sent).await.map_err(|failed| match failed {
            Failed::Unreplicated { acknowledged, wanted, who, .. } => Error::new(
                ErrorKind::Unreplicated,
                format!("{acknowledged} of {wanted} {who} know that token {token} entered {resource:?}; enter again"),
            ),
            failed => failed.into_error(),
        })?;
        let last: Option<String> = parsed(answer)?;
        let Some(last) = last else { return Ok(()) };
        let stale = || Error::new(ErrorKind::Lost, format!("token {token} is refused: {last:?} has entered since"));
        let last = match last.split_once(' ') {
            Some((number, owner)) => {
                let (number, owner) = (number.parse().ok(), owner.parse::<WireOwner>().ok());
                Some(number.zip(owner).map(|(number, owner)| Token::new(number, owner)).ok_or_else(stale)?)
            }
            None => None,
        };
        decide(Watermark { last }).and_then(|()| Err(stale()))
    }
}

impl Gate for RedisGate {
    fn enter<'a>(&'a self, resource: &'a str, token: Token) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.ask(&script::FENCE_ENTER, resource, token, move |mut mark| mark.enter(token)))
    }

    fn enter_shared<'a>(&'a self, resource: &'a str, token: Token) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.ask(&script::FENCE_ENTER_SHARED, resource, token, move |mark| mark.enter_shared(token)))
    }

    fn check<'a>(&'a self, resource: &'a str, token: Token) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.ask(&script::FENCE_CHECK, resource, token, move |mark| mark.check(token)))
    }
}
