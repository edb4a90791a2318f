//! Who the master is, by what the sentinels say. One that missed a failover names the old one: the highest epoch counts, then the most voices,
//! and whoever is named must say itself that it is a master.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::watch;

use super::config::Address;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, Runtime, log};

/// A sentinel that does not answer within this time is not waited for.
const PATIENCE: Duration = Duration::from_millis(700);

/// Between attempts to listen to a sentinel.
const PAUSE: Duration = Duration::from_secs(2);

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
        log!(warn, answered = voices.len(), asked, "most sentinels do not answer; the master they name may be an old one");
    }
    Ok(ranked(voices))
}

/// Listens to one sentinel, also when it was away for a while, and tells of each new master. Ends when `ended` does.
pub(super) async fn listen(
    client: redis::Client,
    master: String,
    runtime: Runtime,
    mut ended: watch::Receiver<()>,
    tell: impl Fn(&Address),
) {
    loop {
        let listening = Box::pin(hear(&client, &master, &tell));
        tokio::select! {
            biased;
            _ = ended.changed() => return,
            heard = listening => if let Err(error) = heard {
                log!(debug, %error, "a sentinel cannot be listened to");
            },
        }
        tokio::select! {
            biased;
            _ = ended.changed() => return,
            () = runtime.sleep_until(runtime.now().plus(runtime::jitter(PAUSE / 2, PAUSE))) => {}
        }
    }
}

async fn hear(client: &redis::Client, master: &str, tell: &impl Fn(&Address)) -> redis::RedisResult<()> {
    let mut connection = client.get_async_pubsub().await?;
    // The one that leads a failover knows first.
    connection.subscribe(&["+switch-master", "+promoted-slave"]).await?;
    let mut messages = connection.on_message();
    while let Some(message) = messages.next().await {
        if let Some(new) = new_master(&message.get_payload::<String>()?, master) {
            tell(&new);
        }
    }
    Ok(())
}

/// What a message says of a new master: its name, the old address and the new one; or `slave`, its name and address, `@` and the old master.
pub(super) fn new_master(message: &str, master: &str) -> Option<Address> {
    let (name, host, port) = match message.split(' ').collect::<Vec<_>>()[..] {
        [name, _, _, host, port] => (name, host, port),
        ["slave", _, host, port, "@", name, ..] => (name, host, port),
        _ => return None,
    };
    let address = Address::Tcp { host: host.to_owned(), port: port.parse().ok()? };
    (name == master).then_some(address)
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
    let mut asking = redis::pipe();
    asking.cmd("SENTINEL").arg("MASTER").arg(master);
    // In a failover this is the new one as soon as it said that it is: earlier than the fields of the other answer.
    asking.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let answers: (HashMap<String, String>, (String, u16)) = asking.query_async(&mut connection).await.map_err(said)?;
    let (fields, (host, port)) = answers;
    let epoch = fields.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    Ok(Voice { address: Address::Tcp { host, port }, epoch })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_master_is_heard_of() {
        let at = |port| Some(Address::Tcp { host: "h".to_owned(), port });
        assert_eq!(new_master("m old 1 h 2", "m"), at(2));
        assert_eq!(new_master("slave h:3 h 3 @ m old 1", "m"), at(3));
        assert_eq!(new_master("other old 1 h 2", "m"), None);
        assert_eq!(new_master("slave h:3 h 3 @ other old 1", "m"), None);
        assert_eq!(new_master("", "m"), None);
    }

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
