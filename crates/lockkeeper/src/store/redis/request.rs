//! What goes over a connection: a script or a command, with what has to travel in the same write, and what its answer means.

use std::time::Duration;

use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};

use super::config::Durability;
use super::script::Lua;
use super::subscriptions::Subscriptions;
use super::{error, millis, names, slots};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::runtime::{Instant, Runtime};
use crate::store::kit::clock::{ClockOffset, Steps};

/// The answer of every script to a request that came too late.
const LATE: i64 = -1;

/// What a script's arguments depend on: the server that gets them.
pub(super) struct Site<'a> {
    pub(super) offset: &'a ClockOffset,
    pub(super) steps: &'a Steps,
    pub(super) runtime: &'a Runtime,
    pub(super) cluster: bool,
    /// The name's slot moves, and its parts may be at two servers.
    pub(super) moving: bool,
    /// The id of the server's run; nothing if it was not asked for.
    pub(super) run: &'a str,
    /// What the connection that carries the request is subscribed to.
    pub(super) subscriptions: &'a Subscriptions,
}

impl Site<'_> {
    /// Microseconds on the server's clock, never later than `at`.
    pub(super) fn micros(&self, at: Instant) -> Vec<u8> {
        self.offset.translated(at).to_string().into_bytes()
    }

    /// For how many ms the server has to remember a counting request that is repeated for no longer than `remember`: no copy of it is in time there
    /// afterwards.
    pub(super) fn remembered(&self, remember: Duration) -> Vec<u8> {
        let set_back = self.steps.set_back(self.offset, remember, self.runtime.now());
        millis(remember.saturating_add(set_back))
    }

    /// The key that counts the tokens of a name, with a question mark before it if it may be at another server. A script must not create it there: a
    /// key that is already here would keep the operator from moving it.
    pub(super) fn tokens(&self, name: &Name, per_name: bool) -> Vec<u8> {
        let counter = token_counter(name, per_name, self.cluster);
        if self.moving { format!("?{counter}").into_bytes() } else { counter.into_bytes() }
    }
}

/// The key that counts the tokens of a name: its own, its slot's, or the server's.
pub(super) fn token_counter(name: &Name, per_name: bool, cluster: bool) -> String {
    if per_name {
        names::tokens_of(name)
    } else if cluster {
        slots::tokens_of(slots::slot(name.as_str()))
    } else {
        names::TOKENS.to_owned()
    }
}

/// Makes a script's arguments.
pub(super) type Arguments<'a> = &'a (dyn Fn(&Site<'_>) -> Vec<Vec<u8>> + Send + Sync);

#[derive(Clone, Copy)]
pub(super) enum Payload<'a> {
    Command(&'a Cmd),
    Script { script: &'a Lua, keys: &'a [&'a str], arguments: Arguments<'a> },
}

/// One request.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) payload: Payload<'a>,
    /// The slot is moving here, and we were sent here for one request.
    pub(super) asking: bool,
    /// The key that counts its tokens, if it may be granted while its slot moves.
    pub(super) counter: Option<&'a str>,
    /// That key may be at another server.
    pub(super) moving: bool,
    /// Where its effect must be before it counts.
    pub(super) durable: Durability,
    /// Its arguments name the server's run.
    pub(super) knows_run: bool,
    /// It touches its keys and nothing beside them: it can follow them while their slot moves. Else it waits until all have arrived.
    pub(super) follows: bool,
    /// All reads come before the first write, so an abort while its slot moves changes nothing.
    pub(super) looks_first: bool,
    /// When the server must refuse it as late; then it has done nothing.
    pub(super) not_after: Option<Instant>,
}

impl<'a> Request<'a> {
    pub(super) fn command(command: &'a Cmd) -> Self {
        Self { follows: true, ..Self::carrying(Payload::Command(command)) }
    }

    pub(super) fn script(script: &'a Lua, keys: &'a [&'a str], arguments: Arguments<'a>) -> Self {
        Self::carrying(Payload::Script { script, keys, arguments })
    }

    fn carrying(payload: Payload<'a>) -> Self {
        Self {
            payload,
            asking: false,
            counter: None,
            moving: false,
            durable: Durability::Master,
            knows_run: false,
            follows: false,
            looks_first: false,
            not_after: None,
        }
    }

    pub(super) fn looking_first(self) -> Self {
        Self { looks_first: true, ..self }
    }

    /// Its tokens are counted under this key.
    pub(super) fn counting_tokens(self, counter: Option<&'a str>) -> Self {
        Self { counter, ..self }
    }

    pub(super) fn durable(self, durable: Durability) -> Self {
        Self { durable, ..self }
    }

    pub(super) fn following(self, follows: bool) -> Self {
        Self { follows, ..self }
    }

    /// Whether it has several keys, which may be in different places while their slot moves.
    pub(super) fn is_of_many(&self) -> bool {
        matches!(self.payload, Payload::Script { keys, .. } if keys.len() > 1)
    }

    pub(super) fn knowing_run(self) -> Self {
        Self { knows_run: true, ..self }
    }

    /// The server refuses it as late after this time, by an answer that is the code for it alone.
    pub(super) fn not_after(self, at: Instant) -> Self {
        Self { not_after: Some(at), ..self }
    }

    pub(super) fn is_script(&self) -> bool {
        matches!(self.payload, Payload::Script { .. })
    }

    /// Whether the server refused it as late although it is not: the server's clock was set since it was measured.
    pub(super) fn is_late(&self, answer: &std::result::Result<Value, Failed>, now: Instant) -> bool {
        let answer = match answer {
            Ok(answer) | Err(Failed::Unreplicated { answer, .. }) => answer,
            Err(_) => return false,
        };
        let Value::Array(words) = answer else { return false };
        // Of several names the number of the late one comes first.
        let late = matches!(words[..], [Value::Int(LATE)] | [Value::Int(1..), Value::Int(LATE)]);
        late && self.not_after.is_some_and(|at| now <= at)
    }

    /// Nothing else travels with it.
    pub(super) fn is_single(&self) -> bool {
        !self.asking && self.durable == Durability::Master
    }

    /// The command between what travels with it; how many answers come before those that count, and how many of those there are.
    pub(super) fn around(&self, command: &Cmd) -> (Pipeline, usize, usize) {
        let mut pipeline = redis::pipe();
        if self.asking {
            pipeline.cmd("ASKING");
        }
        pipeline.add_command(command.clone());
        let millis = |within: Duration| within.as_millis() as u64;
        match self.durable {
            Durability::Master => {}
            Durability::Replicas(number, within) => {
                pipeline.cmd("WAIT").arg(number).arg(millis(within));
            }
            Durability::Disk(within) => {
                pipeline.cmd("WAITAOF").arg(1).arg(0).arg(millis(within));
            }
        }
        let waits = usize::from(self.durable != Durability::Master);
        (pipeline, usize::from(self.asking), 1 + waits)
    }

    /// What the answers mean.
    pub(super) fn judge(&self, answers: RedisResult<Vec<Value>>) -> std::result::Result<Value, Failed> {
        let mut answers = answers.map_err(Failed::of)?.into_iter();
        let nothing = || Failed::Unsent(Error::new(ErrorKind::Protocol, "redis answered less than was asked"));
        let answer = answers.next().ok_or_else(nothing)?.extract_error().map_err(Failed::of)?;
        let (wanted, who) = match self.durable {
            Durability::Master => return Ok(answer),
            Durability::Replicas(number, _) => (u64::from(number), "replicas"),
            Durability::Disk(_) => (1, "disks"),
        };
        // Whatever is wrong with waiting, what was to be waited for is done.
        let acknowledged = match answers.next() {
            Some(Value::Int(number)) => u64::try_from(number).unwrap_or(0),
            Some(Value::Array(numbers)) => match numbers.first() {
                Some(Value::Int(number)) => u64::try_from(*number).unwrap_or(0),
                _ => 0,
            },
            _ => 0,
        };
        if acknowledged >= wanted { Ok(answer) } else { Err(Failed::Unreplicated { answer, acknowledged, wanted, who }) }
    }
}

/// Why there is no answer that counts.
#[derive(Debug)]
pub(super) enum Failed {
    /// It was not sent.
    Unsent(Error),
    /// The server refused it, and did nothing.
    Refused(RedisError),
    /// The connection broke, or the script did in the middle: it may have been done or not, or in part.
    Unknown(RedisError),
    /// It was done, but is not where it must be.
    Unreplicated { answer: Value, acknowledged: u64, wanted: u64, who: &'static str },
}

impl Failed {
    fn of(error: RedisError) -> Self {
        if error.code().is_some() { Self::Refused(error) } else { Self::Unknown(error) }
    }

    /// Whether a slot that is on its way is the reason.
    pub(super) fn is_of_a_moving_slot(&self) -> bool {
        match self {
            Self::Refused(error) | Self::Unknown(error) => {
                matches!(error.code(), Some("ASK" | "TRYAGAIN")) || error::is_half_moved(error)
            }
            Self::Unsent(_) | Self::Unreplicated { .. } => false,
        }
    }

    /// An answer that came all the same, and why what it grants does not count.
    pub(super) fn doubtful(self) -> Result<(Value, Option<Error>)> {
        match self {
            Self::Unreplicated { answer, acknowledged, wanted, who } => {
                let doubt = Self::Unreplicated { answer: Value::Nil, acknowledged, wanted, who };
                Ok((answer, Some(doubt.into_error())))
            }
            failed => Err(failed.into_error()),
        }
    }

    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Unsent(error) => error,
            Self::Refused(error) => error::of_request(error),
            Self::Unknown(error) => error::of_unknown(error),
            Self::Unreplicated { acknowledged, wanted, who, .. } => Error::new(
                ErrorKind::Unreplicated,
                format!("{acknowledged} of {wanted} {who} have it; it does not count, and is being released"),
            ),
        }
    }
}
