//! The clocks of a server's replicas beside its own. A replica that is promoted goes on with leases and tokens by its own clock.

use std::time::Duration;

use futures_util::future::join_all;

use super::config::{Address, Config};
use super::{dial, parsed};
use crate::backend::Finding;
use crate::runtime::{self, Runtime};

/// How long a replica may take to be asked.
const PATIENCE: Duration = Duration::from_millis(700);

/// A difference that is worth a warning: after a promotion leases end so much sooner or later.
const SKEW_MICROS: u64 = 1_000_000;

/// Compares the clocks of the replicas that `info` names with the server's, which is `ahead` µs ahead of ours. Nothing where there are none.
pub(super) async fn clocks(config: &Config, runtime: &Runtime, info: &str, ahead: i64) -> Option<Finding> {
    let replicas = addresses(info);
    let asked = join_all(replicas.iter().map(|address| runtime::within(PATIENCE, Box::pin(ask(config, runtime, address)))));
    let asked: Vec<Option<i64>> = asked.await.into_iter().map(Option::flatten).collect();
    let differences = asked.iter().flatten().map(|replica| replica.abs_diff(ahead));
    let (count, reached) = (replicas.len(), asked.iter().flatten().count());
    let largest = differences.max();
    Some(match largest {
        None if count == 0 => return None,
        None => Finding::doubtful(
            "replicas",
            format!("the clocks of {count} replicas cannot be compared: none can be reached from here"),
        ),
        Some(micros) if micros > SKEW_MICROS => Finding::doubtful(
            "replicas",
            format!("the clock of a replica differs by {} ms from the master's; see to their time service", micros / 1_000),
        ),
        Some(micros) => {
            Finding::fine("replicas", format!("clocks of {reached} of {count} within {} ms of the master's", micros / 1_000))
        }
    })
}

/// How far the clock of a replica is ahead of ours, in µs.
async fn ask(config: &Config, runtime: &Runtime, address: &Address) -> Option<i64> {
    let mut connection = dial::to(config, address).ok()?.get_multiplexed_async_connection().await.ok()?;
    let time = redis::cmd("TIME").query_async::<redis::Value>(&mut connection).await.ok()?;
    let (seconds, micros): (i64, i64) = parsed(time).ok()?;
    Some(seconds * 1_000_000 + micros - i64::try_from(runtime.wall_micros()).ok()?)
}

/// The replicas that have everything, by what `INFO` says.
pub(super) fn addresses(info: &str) -> Vec<Address> {
    let replica = |line: &str| {
        let (number, fields) = line.strip_prefix("slave")?.split_once(':')?;
        number.parse::<u32>().ok()?;
        let field = |name: &str| fields.trim().split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        let port = field("port")?.parse().ok()?;
        (field("state")? == "online").then(|| Address::Tcp { host: field("ip").unwrap_or_default().to_owned(), port })
    };
    info.lines().filter_map(replica).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_read_from_info() {
        let info = "role:master\r\nconnected_slaves:2\r\nslave0:ip=10.0.0.7,port=6380,state=online,offset=1,lag=0\r\n\
                    slave1:ip=10.0.0.8,port=6380,state=wait_bgsave,offset=0,lag=0\r\nslave_read_only:1\r\n";
        assert_eq!(addresses(info), [Address::Tcp { host: "10.0.0.7".to_owned(), port: 6380 }]);
    }
}
