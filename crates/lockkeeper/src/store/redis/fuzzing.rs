//! A door to what is made of the replies of Redis.

use std::time::Duration;

use redis::Value;

use super::config::Address;
use super::inspect::{self, Inspected};
use super::{error, replicas, sentinel, slot_map};
use super::{locks, names, parsed};
use crate::backend::{Acquire, Claim, Kind};
use crate::name::Name;
use crate::owner::{ClientId, WireOwner};

/// The bytes of one reply, read as each of the replies that is expected anywhere.
pub(crate) fn reply(bytes: &[u8]) {
    let Ok(value) = redis::parse_redis_value(bytes) else { return };
    let (name, owner) = (Name::new("a").expect("a good name"), WireOwner { client: ClientId::from_bits(1), number: 1 });
    if let Ok(found) = parsed::<Inspected>(value.clone()) {
        let _ = inspect::shown(&name, found);
    }
    if let Ok(numbers) = parsed::<Vec<i64>>(value.clone()) {
        for claim in [Claim::Mutex, Claim::Fair, Claim::Read, Claim::Write, Claim::Permits { take: 2, of: 3 }] {
            let request = Acquire::new(name.clone(), claim, owner, Duration::from_secs(30)).with_spare_tokens(16);
            if let Ok(crate::backend::Attempt::Granted(grant)) = locks::attempt(&numbers, &request) {
                let _ = grant.last_token();
            }
        }
        let _ = locks::refusal(&numbers, &name, Kind::Semaphore);
        if let [held, woke] = numbers[..] {
            let _ = (locks::released(held, woke, false), locks::released(held, woke, true));
        }
    }
    if let Ok((_, keys)) = parsed::<(String, Vec<Vec<u8>>)>(value.clone()) {
        keys.iter().filter_map(|key| std::str::from_utf8(key).ok()).for_each(key_name);
    }
    let from = Address::Tcp { host: "h".to_owned(), port: 1 };
    let _ = slot_map::ranges(&value, &from);
    let _ = super::node::time_of(&value);
    if let Value::ServerError(told) = &value {
        let told = redis::RedisError::from(told.clone());
        let _ = (slot_map::redirected(&told, Some(&from)), error::of_request(told.clone()), error::of_unknown(told));
    }
    if let Ok(text) = parsed::<String>(value) {
        let _ = (inspect::card_of(&text), sentinel::new_master(&text, "m"), replicas::addresses(&text), error::of_server(&text));
        key_name(&text);
    }
}

fn key_name(key: &str) {
    let _ = (names::is_reserved(key), names::permit_parts(key));
    for prefix in ["redisson_lock_queue:", "lockkeeper:pending:", ""] {
        if let Some(name) = names::behind(key, prefix) {
            for kind in [Kind::Mutex, Kind::Latch] {
                let _ = (names::share_a_slot(&name, kind), names::channel(&name, kind, None), names::braced_word(&name));
            }
        }
    }
}
