//! What is held: one script per request.

use std::time::Duration;

use redis::Value;

use super::gather::{Step, Want, Way};
use super::script::{self, Lua};
use super::transport::Clock;
use super::{RedisStore, error, millis, names, parsed};
use crate::backend::{Acquire, Attempt, Busy, Claim, Grant, Kind, Release, Released, Renew, Renewed};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::owner::WireOwner;

impl RedisStore {
    pub(super) async fn take(&self, request: &Acquire) -> Result<Attempt> {
        let (script, wanted) = match request.claim {
            Claim::Mutex => (&script::MUTEX_ACQUIRE, Kind::Mutex),
            Claim::Fair => (&script::FAIR_ACQUIRE, Kind::Mutex),
            Claim::Read => (&script::READ_ACQUIRE, Kind::RwLock),
            Claim::Write => (&script::WRITE_ACQUIRE, Kind::RwLock),
            Claim::Permits { .. } => (&script::PERMITS_ACQUIRE, Kind::Semaphore),
        };
        let want = Want::Take { lease: request.lease, not_after: request.not_after };
        let gathers = request.claim == Claim::Mutex && request.floor == 0 && !self.tokens_per_name();
        let attempt = match self.way(gathers, &request.name, request.owner, want).await? {
            Way::Together([0, left]) => attempt(&[0, left, -1], &request.name, wanted),
            Way::Together([-1, _]) => Ok(Attempt::Late),
            Way::Together(numbers) => attempt(&numbers, &request.name, wanted),
            Way::Alone(_slot) => {
                let answer = self.transport.run(script, &[request.name.as_str()], |clock| self.asking(request, clock)).await?;
                attempt(&parsed::<Vec<i64>>(answer)?, &request.name, wanted)
            }
        }?;
        if attempt == Attempt::Late {
            self.transport.late(request.not_after);
        }
        Ok(attempt)
    }

    async fn way(&self, gathers: bool, name: &Name, owner: WireOwner, want: Want) -> Result<Way<'_>> {
        if !gathers {
            return Ok(Way::Alone(None));
        }
        self.gather.way(&self.transport, Step { name: name.clone(), owner, want }).await
    }

    /// Whether mutexes have a counter of tokens each, as Redisson's fenced locks do.
    fn tokens_per_name(&self) -> bool {
        self.transport.config().tokens_per_name
    }

    /// The key that counts the tokens of a mutex.
    fn tokens(&self, name: &Name) -> Vec<u8> {
        if self.tokens_per_name() { names::tokens_of(name).into_bytes() } else { names::TOKENS.into() }
    }

    pub(super) fn asking(&self, request: &Acquire, clock: &Clock) -> Vec<Vec<u8>> {
        if let Claim::Permits { take, of } = request.claim {
            let mut arguments = vec![millis(request.lease), clock.micros(request.not_after), text(of)];
            arguments.extend(names::permit_ids(request.owner, take));
            return arguments;
        }
        let place = millis(request.place.unwrap_or_default());
        let tokens = match request.claim {
            Claim::Mutex | Claim::Fair => self.tokens(&request.name),
            _ => names::TOKENS.into(),
        };
        let mut arguments =
            vec![text(request.owner), millis(request.lease), clock.micros(request.not_after), text(request.floor), tokens];
        match request.claim {
            Claim::Fair => arguments.extend([place, millis(self.fair_unit)]),
            Claim::Read => {
                let beside = request.beside.map_or_else(Vec::new, |writer| format!("{writer}:write").into_bytes());
                arguments.extend([clock.micros(request.since), beside]);
            }
            Claim::Write => arguments.extend([clock.micros(request.since), place]),
            Claim::Mutex | Claim::Permits { .. } => {}
        }
        arguments
    }

    pub(super) async fn give_back(&self, request: &Release) -> Result<Released> {
        let Release { name, claim, owner, then } = request;
        let gathers = *claim == Claim::Mutex && then.is_none();
        let _slot = match self.way(gathers, name, *owner, Want::GiveBack).await? {
            Way::Together([held, _]) => return Ok(Released { held: held == 1, next: None }),
            Way::Alone(slot) => slot,
        };
        let channel = names::channel(name, claim.kind(), None).into_bytes();
        let (script, arguments): (&Lua, Vec<Vec<u8>>) = match claim {
            Claim::Mutex if then.is_some() => (&script::MUTEX_HAND_OVER, vec![text(owner), channel]),
            Claim::Mutex => (&script::MUTEX_RELEASE, vec![text(owner), channel]),
            Claim::Fair => (&script::FAIR_RELEASE, vec![text(owner), channel, millis(self.fair_unit)]),
            Claim::Read => (&script::READ_RELEASE, vec![text(owner), channel]),
            Claim::Write => (&script::WRITE_RELEASE, vec![text(owner), channel]),
            Claim::Permits { take, .. } => {
                (&script::PERMITS_RELEASE, std::iter::once(channel).chain(names::permit_ids(*owner, *take)).collect())
            }
        };
        if let Some(then) = then
            && (*claim != Claim::Mutex || then.claim != Claim::Mutex || then.name != *name || then.owner == *owner)
        {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "a successor must be another owner that asks for the mutex that is released",
            ));
        }
        let keys = [name.as_str()];
        let answer = self.transport.run(script, &keys, |clock| {
            let successor = then.iter().flat_map(|then| {
                let (until, tokens) = (clock.micros(then.not_after), self.tokens(name));
                [text(then.owner), millis(then.lease), until, text(then.floor), tokens]
            });
            arguments.into_iter().chain(successor).collect()
        });
        let numbers: Vec<i64> = parsed(answer.await?)?;
        let next = match (then, &numbers[..]) {
            (Some(then), [_, next @ ..]) => Some(attempt(next, &then.name, Kind::Mutex)?),
            _ => None,
        };
        Ok(Released { held: numbers.first() == Some(&1), next })
    }

    pub(super) async fn keep(&self, requests: &[Renew]) -> Result<Vec<Result<Renewed>>> {
        let keys: Vec<&str> = requests.iter().map(|request| request.name.as_str()).collect();
        let mut arguments = Vec::with_capacity(requests.len() * 3);
        for Renew { claim, owner, lease, .. } in requests {
            let lease = lease.map_or_else(|| b"0".to_vec(), millis);
            match claim {
                Claim::Mutex | Claim::Fair => arguments.extend([b"hash".to_vec(), text(owner), lease]),
                Claim::Write => arguments.extend([b"hash".to_vec(), format!("{owner}:write").into_bytes(), lease]),
                Claim::Read => arguments.extend([b"read".to_vec(), text(owner), lease]),
                Claim::Permits { take, .. } => {
                    arguments.extend([b"permits".to_vec(), text(take), lease]);
                    arguments.extend(names::permit_ids(*owner, *take));
                }
            }
        }
        let answers: Vec<Value> = parsed(self.transport.run(&script::RENEW, &keys, |_| arguments).await?)?;
        Ok(answers.into_iter().map(renewed).collect())
    }
}

/// What a renewing script says of one hold.
pub(super) fn renewed(answer: Value) -> Result<Renewed> {
    match answer {
        Value::Int(1) => Ok(Renewed::Kept),
        Value::Int(_) => Ok(Renewed::Gone),
        // Something else lies there now: what was held is gone.
        Value::BulkString(error) if String::from_utf8_lossy(&error).contains("WRONGTYPE") => Ok(Renewed::Gone),
        Value::BulkString(error) => Err(error::of_server(&String::from_utf8_lossy(&error))),
        other => Err(error::unexpected(&other)),
    }
}

/// What an acquiring script says.
pub(super) fn attempt(numbers: &[i64], name: &Name, wanted: Kind) -> Result<Attempt> {
    let known = |number: i64| u64::try_from(number).ok();
    match *numbers {
        [1, token] => Ok(Attempt::Granted(Grant { token: known(token).filter(|token| *token > 0) })),
        [0, left, ahead] => {
            Ok(Attempt::Busy(Busy { retry_in: known(left).map(Duration::from_millis), ahead: u32::try_from(ahead).ok() }))
        }
        [-1] => Ok(Attempt::Late),
        _ => Err(refusal(numbers, name, wanted)),
    }
}

/// Why a script refused.
pub(super) fn refusal(numbers: &[i64], name: &Name, wanted: Kind) -> Error {
    let found = |code| match code {
        1 => Some(Kind::Mutex),
        2 => Some(Kind::RwLock),
        3 => Some(Kind::Semaphore),
        4 => Some(Kind::CountingSemaphore),
        5 => Some(Kind::Latch),
        _ => None,
    };
    match *numbers {
        [-2, code] if found(code).is_some() => found(code).unwrap_or(wanted).instead_of(wanted, name),
        [-3] => Error::new(
            ErrorKind::ForeignKey,
            format!("under {name:?} lies a key that is no lock (a lock always expires); choose another name or remove it"),
        ),
        [-4, size] if wanted == Kind::Semaphore => Error::new(
            ErrorKind::InvalidArgument,
            format!("the semaphore {name:?} has {size} permits in all; ask for {size}, or resize it"),
        ),
        [-5, size] => {
            Error::new(ErrorKind::InvalidArgument, format!("cannot take so many permits of {name:?}; take 1 to {size}"))
        }
        [-4, number] => {
            Error::new(ErrorKind::InvalidArgument, format!("the permits would become {number}, more than are counted"))
        }
        _ => error::unexpected(&Value::Array(numbers.iter().copied().map(Value::Int).collect())),
    }
}

pub(super) fn text(value: impl ToString) -> Vec<u8> {
    value.to_string().into_bytes()
}
