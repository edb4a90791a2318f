//! Acquiring, releasing and renewing holds: one script per request.

use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;

use super::batch::{Route, Step, Want, What};
use super::config::Durability;
use super::request::{Failed, Request, Site, token_counter};
use super::script::{self, Lua};
use super::{Lane, RedisStore, error, far, millis, names, parsed};
use crate::backend::{Acquire, Attempt, Busy, Claim, Grant, Kind, Register, Release, Released, Renew, Renewed};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;

impl RedisStore {
    pub(super) async fn run_acquire(&self, request: &Acquire) -> Result<Attempt> {
        let (script, wanted) = match request.claim {
            Claim::Mutex => (&script::MUTEX_ACQUIRE, Kind::Mutex),
            Claim::Fair => (&script::FAIR_ACQUIRE, Kind::Mutex),
            Claim::Read => (&script::READ_ACQUIRE, Kind::RwLock),
            Claim::Write => (&script::WRITE_ACQUIRE, Kind::RwLock),
            Claim::Permits { .. } => (&script::PERMITS_ACQUIRE, Kind::Semaphore),
        };
        self.admit(&request.name, wanted)?;
        let register = request.register;
        let spares = request.spare_tokens > 0 && !self.tokens_per_name();
        let ranged = request.claim == Claim::Mutex && (spares || register != Register::No);
        let script = if ranged { &script::MUTEX_RANGE } else { script };
        let batched = match request.claim {
            Claim::Mutex => !self.tokens_per_name() && !spares && register != Register::Only,
            claim => is_batched(claim),
        };
        let want = || match request.claim {
            Claim::Mutex => Want::Acquire { owner: request.owner, lease: request.lease, not_after: request.not_after, register },
            _ => {
                let request = request.clone();
                let arguments = Box::new(move |site: &Site<'_>| asking(&request, site, false, Duration::ZERO));
                Want::Call { what: What::Acquires, script, arguments }
            }
        };
        match self.route(batched, &self.grants, &request.name, is_of_permits(request.claim), want).await? {
            Route::Batched(numbers) => attempt(&numbers, request),
            Route::Single(_slot) => {
                let (keys, arguments) = ([request.name.as_str()], |site: &Site<'_>| {
                    let mut arguments = asking(request, site, self.tokens_per_name(), self.fair_unit);
                    if ranged {
                        let spare = if spares { spare(request) } else { text(0) };
                        arguments.extend([spare, text(registered(register))]);
                    }
                    arguments
                });
                let sent = Request::script(script, &keys, &arguments).durable(self.transport.config().durability);
                let counter = self.moving_counter(&request.name);
                let sent = sent
                    .following(request.claim == Claim::Mutex)
                    .not_after(request.not_after)
                    .counting_tokens(counter.as_deref());
                let (answer, doubt) = match Box::pin(self.grants.transport.send(keys[0], &sent)).await {
                    Ok(answer) => (answer, None),
                    Err(failed) => failed.doubtful()?,
                };
                let attempt = attempt(&parsed::<Vec<i64>>(answer)?, request);
                match (attempt, doubt) {
                    (Ok(Attempt::Granted(_)), Some(doubt)) => Err(doubt),
                    (attempt, _) => attempt,
                }
            }
        }
    }

    /// Finds a way for a request. `behind`: those of its executor that gather are to be carried out before it.
    pub(super) async fn route<'a>(
        &self,
        batched: bool,
        lane: &'a Lane,
        name: &Name,
        behind: bool,
        want: impl FnOnce() -> Want,
    ) -> Result<Route<'a>> {
        // Keys of different slots do not go into one call.
        if !batched || self.transport.is_cluster() {
            return Ok(Route::Single(None));
        }
        lane.batcher.route(&lane.transport, behind, || Step { name: name.clone(), want: want() }).await
    }

    /// The key that counts the tokens of a mutex, where its slot may move.
    pub(super) fn moving_counter(&self, name: &Name) -> Option<String> {
        self.transport.is_cluster().then(|| token_counter(name, self.tokens_per_name(), true))
    }

    /// Whether mutexes have a counter of tokens each, as Redisson's fenced locks do.
    pub(super) fn tokens_per_name(&self) -> bool {
        self.transport.config().tokens_per_name
    }

    /// The script of a release and its arguments, without those of a successor.
    pub(super) fn releasing(&self, request: &Release) -> (&'static Lua, Vec<Vec<u8>>) {
        let Release { name, claim, owner, then, .. } = request;
        let channel = names::channel(name, claim.kind(), None).into_bytes();
        match claim {
            Claim::Mutex if then.is_some() => (&script::MUTEX_HAND_OVER, vec![text(owner), channel]),
            Claim::Mutex => (&script::MUTEX_RELEASE, vec![text(owner), channel]),
            Claim::Fair => (&script::FAIR_RELEASE, vec![text(owner), channel, millis(self.fair_unit)]),
            Claim::Read => (&script::READ_RELEASE, vec![text(owner), channel]),
            Claim::Write => (&script::WRITE_RELEASE, vec![text(owner), channel]),
            Claim::Permits { take, .. } => {
                (&script::PERMITS_RELEASE, std::iter::once(channel).chain(names::permit_ids(*owner, *take)).collect())
            }
        }
    }

    pub(super) async fn run_release(&self, request: &Release) -> Result<Released> {
        let Release { name, claim, owner, then, .. } = request;
        if let Some(then) = then.as_deref().filter(|_| request.if_alone) {
            return self.run_keep(request, then).await;
        }
        let batched = then.is_none() && (*claim == Claim::Mutex || is_batched(*claim));
        let want = || match claim {
            Claim::Mutex => Want::Release { owner: *owner },
            _ => {
                let (script, arguments) = self.releasing(request);
                Want::Call { what: What::Releases, script, arguments: Box::new(move |_| arguments.clone()) }
            }
        };
        let _slot = match self.route(batched, &self.releases, name, is_of_permits(*claim), want).await? {
            Route::Batched(numbers) => match numbers[..] {
                [held, woke] => return Ok(self.released(request, held, woke)),
                _ => return Err(error::unexpected(&Value::Array(numbers.iter().copied().map(Value::Int).collect()))),
            },
            Route::Single(slot) => slot,
        };
        let (script, arguments) = self.releasing(request);
        if let Some(then) = then {
            check_successor(request, then)?;
        }
        let (keys, arguments) = ([name.as_str()], |site: &Site<'_>| {
            let successor = then.iter().flat_map(|then| {
                let (until, tokens) = (site.micros(then.not_after), site.tokens(name, self.tokens_per_name()));
                [text(then.owner), millis(then.lease), until, text(0), tokens]
            });
            arguments.iter().cloned().chain(successor).collect()
        });
        let counter = self.moving_counter(name);
        let (sent, lane) = match then {
            None => (Request::script(script, &keys, &arguments), &self.releases),
            // It grants as well.
            Some(_) => {
                let sent = Request::script(script, &keys, &arguments).durable(self.transport.config().durability);
                (sent.counting_tokens(counter.as_deref()), &self.grants)
            }
        };
        let sent = sent.following(*claim == Claim::Mutex);
        let (answer, doubt) = match Box::pin(lane.transport.send(keys[0], &sent)).await {
            Ok(answer) => (answer, None),
            Err(failed) => failed.doubtful()?,
        };
        let numbers: Vec<i64> = parsed(answer)?;
        let next = match (then, &numbers[..]) {
            // The release counts. The grant does not until replicas have it: the successor asks for it itself.
            _ if doubt.is_some() => None,
            (Some(then), [_, next @ ..]) => Some(attempt(next, then)?),
            (None, &[held, woke]) => return Ok(self.released(request, held, woke)),
            _ => None,
        };
        Ok(Released { held: numbers.first() == Some(&1), next, woke: Some(0) })
    }

    /// The reply of a releasing script. Where it woke one client it did not notify this one: that is made up for here, because the local queue counts
    /// notifications and takes one of them for its own release.
    pub(super) fn released(&self, request: &Release, held: i64, woke: i64) -> Released {
        let own = woke < 0 && self.watching.notify_client(&request.name, request.owner.client);
        released(held, woke, own)
    }

    pub(super) async fn run_renew(&self, requests: &[Renew]) -> Result<Vec<Result<Renewed>>> {
        let keys: Vec<&str> = requests.iter().map(|request| request.name.as_str()).collect();
        let parts = self.transport.atomic_groups(&keys);
        let calls = parts.iter().map(|part| self.renew_together(requests, part));
        let mut renewed: Vec<Option<Result<Renewed>>> = requests.iter().map(|_| None).collect();
        for (part, answers) in parts.iter().zip(join_all(calls).await) {
            // Each of several parts stands for itself. The failure of the only part is the failure of the call.
            match answers {
                Err(error) if parts.len() == 1 => return Err(error),
                Err(error) => part.iter().for_each(|&at| renewed[at] = Some(Err(error.clone()))),
                Ok(answers) => part.iter().zip(answers).for_each(|(&at, answer)| renewed[at] = Some(answer)),
            }
        }
        renewed.into_iter().map(|one| one.ok_or_else(error::too_few)).collect()
    }

    /// Renews what may go in one call: indices into `requests`.
    async fn renew_together(&self, requests: &[Renew], part: &[usize]) -> Result<Vec<Result<Renewed>>> {
        let keys: Vec<&str> = part.iter().map(|&at| requests[at].name.as_str()).collect();
        let renewals = || part.iter().map(|&at| &requests[at]);
        let asked = self.ask(renewals());
        let arguments = |_: &Site<'_>| {
            let mut arguments = Vec::with_capacity(part.len() * 3);
            for (Renew { claim, owner, .. }, asked) in renewals().zip(&asked) {
                let lease = far::lease(asked);
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
            arguments
        };
        // A longer lease counts when the replicas that were asked for have it.
        let lengthens = part.iter().any(|&at| requests[at].lease.is_some());
        let (durable, lane) =
            if lengthens { (self.transport.config().durability, &self.grants) } else { (Durability::Master, &self.releases) };
        // Readers and permits have keys beside the name's own.
        let follows = part.iter().all(|&at| !matches!(requests[at].claim, Claim::Read | Claim::Permits { .. }));
        let sent = Request::script(&script::RENEW, &keys, &arguments).durable(durable).following(follows);
        let answer = match lane.transport.send(keys.first().copied().unwrap_or_default(), &sent).await {
            // While a slot moves, some holds can be renewed where it goes to; one by one they do not hinder each other.
            Err(failed) if part.len() > 1 && failed.is_of_a_moving_slot() => {
                let each = part.iter().map(|at| Box::pin(self.renew_together(requests, std::slice::from_ref(at))));
                let each = join_all(each).await.into_iter();
                return Ok(each.map(|one| one.and_then(|mut one| one.pop().unwrap_or_else(|| Err(error::too_few())))).collect());
            }
            answer => answer.map_err(Failed::into_error)?,
        };
        let answers: Vec<Value> = parsed(answer)?;
        Ok(self.renewed(answers, renewals().zip(&asked)))
    }
}

/// The arguments of the script that acquires. `per_name`: each mutex counts its own tokens.
pub(super) fn asking(request: &Acquire, site: &Site<'_>, per_name: bool, fair_unit: Duration) -> Vec<Vec<u8>> {
    if let Claim::Permits { take, of } = request.claim {
        let mut arguments =
            vec![millis(request.lease), site.micros(request.not_after), text(of), text(u8::from(request.any_size))];
        arguments.extend(names::permit_ids(request.owner, take));
        return arguments;
    }
    let place = millis(request.place.unwrap_or_default());
    let is_mutex = matches!(request.claim, Claim::Mutex | Claim::Fair);
    let tokens = site.tokens(&request.name, is_mutex && per_name);
    let mut arguments = vec![text(request.owner), millis(request.lease), site.micros(request.not_after), text(0), tokens];
    match request.claim {
        Claim::Fair => arguments.extend([place, millis(fair_unit)]),
        Claim::Read => {
            let beside = request.beside.map_or_else(Vec::new, |writer| format!("{writer}:write").into_bytes());
            arguments.extend([site.micros(request.since), beside]);
        }
        Claim::Write => arguments.extend([site.micros(request.since), place]),
        Claim::Mutex | Claim::Permits { .. } => {}
    }
    arguments
}

/// Whether claims that are no mutexes travel with others. A fair mutex is one at a time by nature, and many permits take the server as long as many
/// steps.
const fn is_batched(claim: Claim) -> bool {
    match claim {
        Claim::Read | Claim::Write => true,
        Claim::Permits { take, .. } => take <= MOST_PERMITS,
        Claim::Mutex | Claim::Fair => false,
    }
}

const MOST_PERMITS: u32 = 8;

/// Waiters ask as soon as a release of this process was sent, and would come in vain before it.
const fn is_of_permits(claim: Claim) -> bool {
    matches!(claim, Claim::Permits { .. })
}

/// Refuses a successor that asks for something else than what is released.
pub(super) fn check_successor(request: &Release, then: &Acquire) -> Result<()> {
    let Release { name, claim, owner, .. } = request;
    if *claim != Claim::Mutex || then.claim != Claim::Mutex || then.name != *name || then.owner == *owner {
        let message = "a successor must be another owner that asks for the mutex that is released";
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    Ok(())
}

/// How many tokens to reserve after the first.
pub(super) fn spare(request: &Acquire) -> Vec<u8> {
    text(request.spare_tokens.min(Acquire::MAX_SPARE_TOKENS))
}

/// How many were woken by the reply of a releasing script: itself, or -1 minus it where one client was, which this client adds itself to if it listens.
pub(super) fn released(held: i64, woke: i64, own: bool) -> Released {
    let woke = if woke < 0 { (-1_i64).saturating_sub(woke).saturating_add(i64::from(own)) } else { woke };
    Released { held: held == 1, next: None, woke: Some(u32::try_from(woke).unwrap_or(0)) }
}

/// What scripts are told of registering.
pub(super) const fn registered(register: Register) -> u8 {
    match register {
        Register::No => 0,
        Register::Last => 1,
        Register::First => 2,
        Register::Only => 3,
    }
}

/// The reply of an acquiring script.
pub(super) fn attempt(numbers: &[i64], request: &Acquire) -> Result<Attempt> {
    let known = |number: i64| u64::try_from(number).ok();
    match *numbers {
        [1, token] => Ok(Attempt::Granted(Grant::new(known(token).filter(|token| *token > 0), request.lease))),
        [1, token, spare] => {
            let spare = u32::try_from(spare).unwrap_or(0).min(request.spare_tokens);
            Ok(Attempt::Granted(Grant::new(known(token), request.lease).with_spare_tokens(spare)))
        }
        [0, left, ahead] => {
            let (retry_in, ahead) = (known(left).map(Duration::from_millis), u32::try_from(ahead).ok());
            // A fair waiter keeps the place that it got before, also where this request asks for none.
            let placed = ahead.is_some() || request.claim == Claim::Write && request.place.is_some();
            // It only registered, and the mutex is free as far as is known.
            let unseen = request.register == Register::Only && left < 0;
            Ok(Attempt::Busy(Busy { retry_in, ahead, placed, unseen }))
        }
        [-1] => Ok(Attempt::Late),
        _ => Err(refusal(numbers, &request.name, request.claim.kind())),
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
        [-3, found] => no_lock(name, found),
        [-4, size] if wanted == Kind::Semaphore => Error::new(
            ErrorKind::InvalidArgument,
            format!("the semaphore {name:?} has {size} permits in all; ask for {size}, or resize it"),
        ),
        [-5, size] => {
            Error::new(ErrorKind::InvalidArgument, format!("cannot acquire that many permits of {name:?}; acquire 1 to {size}"))
        }
        [-4, number] => Error::new(ErrorKind::InvalidArgument, format!("{number} permits exceed the maximum of {}", 1_u64 << 52)),
        _ => error::unexpected(&Value::Array(numbers.iter().copied().map(Value::Int).collect())),
    }
}

/// The error for a key that is no lock, by the number that the scripts have for its type.
pub(super) fn no_lock(name: &Name, found: i64) -> Error {
    let types = ["", "a string, ", "a list, ", "a set, ", "a sorted set, ", "a hash, ", "a stream, "];
    let found = usize::try_from(found).ok().and_then(|found| types.get(found)).unwrap_or(&"");
    let message = format!("the key {name:?} is {found}not a lock; choose another name or remove the key");
    Error::new(ErrorKind::ForeignKey, message)
}

pub(super) fn text(value: impl ToString) -> Vec<u8> {
    value.to_string().into_bytes()
}
