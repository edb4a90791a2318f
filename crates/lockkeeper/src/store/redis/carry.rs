//! What carries a batch to the server: one call with all its steps, and their replies.

use redis::Value;

use super::batch::{Answer, Carrier, Numbers, Step, Want, What};
use super::config::Durability;
use super::locks::{registered, text};
use super::request::{Request, Site};
use super::script::{self, Lua};
use super::transport::Transport;
use super::{error, millis, names, parsed};
use crate::backend::{Kind, Register};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::Runtime;

/// The code of the script for many mutexes for one that has to be asked for by itself.
const SINGLE: i64 = -9;

impl Carrier for Transport {
    fn runtime(&self) -> &Runtime {
        self.runtime()
    }

    async fn ask(&self, steps: &[Step], durable: Durability) -> Result<(Vec<Answer>, Option<Error>)> {
        let keys: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        // Mutexes alone have a script that is made for them: it does what theirs do in the simple cases, for less.
        let mutexes = steps.iter().all(|step| !matches!(step.want, Want::Call { .. }));
        let script = if mutexes { &script::MUTEX_MANY } else { &script::MANY };
        let arguments = |site: &Site<'_>| if mutexes { of_mutexes(steps, site) } else { of_calls(steps, site) };
        let request = Request::script(script, &keys, &arguments).durable(durable);
        let (answer, doubt) = match self.send(keys[0], &request).await {
            Ok(answer) => (answer, None),
            Err(failed) => match failed.doubtful() {
                // The server refuses the whole call for one key. The script itself never fails on a missing right.
                Err(error) if error.kind() == ErrorKind::Denied => return Ok((Vec::new(), None)),
                doubtful => doubtful?,
            },
        };
        let answers: Vec<Answer> = if mutexes {
            let numbers: Vec<i64> = parsed(answer)?;
            numbers.chunks_exact(2).zip(steps).map(|(pair, step)| Ok(of_mutex([pair[0], pair[1]], step.what()))).collect()
        } else {
            parsed::<Vec<Value>>(answer)?.into_iter().zip(steps).map(|(reply, step)| of_call(reply, step.what())).collect()
        };
        if answers.len() == steps.len() { Ok((answers, doubt)) } else { Err(error::too_few()) }
    }
}

/// What the script for many mutexes says of one, as the scripts for one do.
fn of_mutex([code, value]: [i64; 2], what: What) -> Option<Numbers> {
    match (code, what) {
        (SINGLE, _) => None,
        (0, What::Acquires) => Numbers::new(&[0, value, -1]),
        (LATE, What::Acquires) => Numbers::new(&[LATE]),
        _ => Numbers::new(&[code, value]),
    }
}

/// The reply to a step that came too late.
const LATE: i64 = -1;

/// What the script for many steps says of one.
fn of_call(reply: Value, what: What) -> Answer {
    match reply {
        Value::Array(_) => Ok(Numbers::new(&parsed::<Vec<i64>>(reply)?)),
        // It failed, and may have done a part. By itself it gives the usual error. An acquire and a release may be repeated; what counts
        // may not, unless it did nothing.
        Value::BulkString(failed) if what == What::Counts => {
            let failed = String::from_utf8_lossy(&failed);
            if error::says_replica(&failed) { Ok(None) } else { Err(error::of_server(&failed)) }
        }
        Value::BulkString(_) => Ok(None),
        other => Err(error::unexpected(&other)),
    }
}

/// Each step with the arguments of its own script.
fn of_calls(steps: &[Step], site: &Site<'_>) -> Vec<Vec<u8>> {
    let mut arguments = Vec::with_capacity(10 * steps.len());
    for step in steps {
        let (script, own): (&Lua, Vec<Vec<u8>>) = match &step.want {
            Want::Acquire { owner, lease, not_after, register } => {
                let tokens = site.tokens(&step.name, false);
                let register = text(registered(*register));
                let own = vec![text(owner), millis(*lease), site.micros(*not_after), text(0), tokens, text(0), register];
                (&script::MUTEX_RANGE, own)
            }
            Want::Release { owner } => {
                (&script::MUTEX_RELEASE, vec![text(owner), names::channel(&step.name, Kind::Mutex, None).into_bytes()])
            }
            Want::Call { script, arguments, .. } => (script, arguments(site)),
        };
        arguments.extend([text(script.step), text(own.len())]);
        arguments.extend(own);
    }
    arguments
}

fn of_mutexes(steps: &[Step], site: &Site<'_>) -> Vec<Vec<u8>> {
    let mut arguments = Vec::with_capacity(3 + 3 * steps.len());
    arguments.push(steps.first().map_or_else(Vec::new, |step| site.tokens(&step.name, false)));
    let latest = steps.iter().filter_map(|step| match step.want {
        Want::Acquire { not_after, .. } => Some(not_after),
        _ => None,
    });
    arguments.push(latest.min().map_or_else(|| b"9007199254740991".to_vec(), |earliest| site.micros(earliest)));
    let registers = |step: &Step| match step.want {
        Want::Acquire { register, .. } => register,
        _ => Register::No,
    };
    let none = steps.iter().all(|step| registers(step) == Register::No);
    arguments.push(if none { Vec::new() } else { steps.iter().map(|step| b'0' + registered(registers(step))).collect() });
    for Step { name, want } in steps {
        match want {
            Want::Acquire { owner, lease, not_after, .. } => {
                arguments.extend([text(owner), millis(*lease), site.micros(*not_after)]);
            }
            Want::Release { owner } => {
                arguments.extend([text(owner), b"0".to_vec(), names::channel(name, Kind::Mutex, None).into_bytes()]);
            }
            // It has no place in this script.
            Want::Call { .. } => {}
        }
    }
    arguments
}
