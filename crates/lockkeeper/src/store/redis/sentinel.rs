//! Who the master is, by what the sentinels say. One that missed a failover names the old one: the highest epoch counts, then the most voices,
//! and whoever is named must say itself that it is a master.

use std::time::Duration;

use redis::Value;

use super::config::Address;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime;

/// A sentinel that does not answer within this time is not waited for.
const PATIENCE: Duration = Duration::from_millis(700);

/// What one sentinel says of the master.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Voice {
    address: Address,
    /// The failover that made it master.
    epoch: u64,
}

/// Asks all sentinels at once; the masters that they name, the likeliest first.
pub(super) async fn masters(sentinels: Vec<(String, redis::Client)>, master: &str) -> Result<Vec<Address>> {
    let asked = sentinels.len();
    let asking: Vec<_> = sentinels
        .into_iter()
        .map(|(shown, client)| {
            let master = master.to_owned();
            runtime::beside(async move {
                let answer = runtime::within(PATIENCE, Box::pin(ask(&client, &master))).await;
                answer.unwrap_or_else(|| Err("no answer".to_owned())).map_err(|why| format!("{shown}: {why}"))
            })
        })
        .collect();
    let (mut voices, mut troubles) = (Vec::new(), Vec::new());
    for answer in asking {
        match answer.await {
            Some(Ok(voice)) => voices.push(voice),
            Some(Err(trouble)) => troubles.push(trouble),
            None => {}
        }
    }
    if voices.is_empty() {
        let troubles = troubles.join("; ");
        let message = format!("no sentinel names the master {master:?}: {troubles}; look at the addresses and the master's name");
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    if voices.len() * 2 <= asked {
        tracing::warn!(answered = voices.len(), asked, "most sentinels do not answer; the master they name may be an old one");
    }
    Ok(ranked(voices))
}

/// What makes one likelier than another.
fn ranked(voices: Vec<Voice>) -> Vec<Address> {
    let mut masters: Vec<(u64, usize, Address)> = Vec::new();
    for Voice { address, epoch } in voices {
        match masters.iter_mut().find(|(_, _, known)| *known == address) {
            Some((highest, count, _)) => {
                *highest = epoch.max(*highest);
                *count += 1;
            }
            None => masters.push((epoch, 1, address)),
        }
    }
    masters.sort_by_key(|(epoch, count, _)| std::cmp::Reverse((*epoch, *count)));
    masters.into_iter().map(|(.., address)| address).collect()
}

async fn ask(client: &redis::Client, master: &str) -> std::result::Result<Voice, String> {
    let said = |error: redis::RedisError| error.code().map_or_else(|| "cannot be reached".to_owned(), |_| error.to_string());
    let mut connection = client.get_multiplexed_async_connection().await.map_err(said)?;
    let fields: Value = redis::cmd("SENTINEL").arg("MASTER").arg(master).query_async(&mut connection).await.map_err(said)?;
    let fields: std::collections::HashMap<String, String> =
        redis::from_redis_value(fields).map_err(|_| "an answer that is not understood".to_owned())?;
    let field = |name: &str| fields.get(name).ok_or_else(|| format!("an answer without {name}"));
    Ok(Voice {
        address: Address::Tcp {
            host: field("ip")?.clone(),
            port: field("port")?.parse().map_err(|_| "a port that is no number".to_owned())?,
        },
        epoch: field("config-epoch")?.parse().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_sentinels_are_outvoted() {
        let at = |port| Address::Tcp { host: "h".to_owned(), port };
        let voice = |port, epoch| Voice { address: at(port), epoch };
        assert_eq!(
            ranked(vec![voice(1, 3), voice(2, 4), voice(1, 3)]),
            [at(2), at(1)],
            "a later failover counts more than voices"
        );
        assert_eq!(ranked(vec![voice(1, 0), voice(2, 0), voice(2, 0)]), [at(2), at(1)], "else the most voices do");
        assert_eq!(ranked(vec![voice(7, 0)]), [at(7)]);
    }
}
