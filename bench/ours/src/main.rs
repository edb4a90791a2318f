//! lockkeeper as a contestant of the benchmarks, and the floors that it is held against: `as=` says which.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the machine's clock, and is no part of the library")]

mod floor;
mod locks;
mod more;
mod sql;
mod store;

use std::sync::Arc;

use bench_course::{Lock, Order, contend, cycle, heats, race};
use lockkeeper::Client;

fn main() {
    race(async |order| match order.workload.as_str() {
        "cycle" | "contend" => mutex_or_fair(&order).await,
        "crowd" => more::crowd(&order).await,
        "keep" => more::keep(&order).await,
        "readers" => more::readers(&order).await,
        "reenter" => more::reenter(&order).await,
        "open" => more::open(&order).await,
        other => panic!("there is no workload {other}"),
    });
}

async fn mutex_or_fair(order: &Order) {
    match order.text("as").unwrap_or("mutex") {
        "mutex" => with_client(order, |client, name| locks::Plain(client.mutex(name))).await,
        "fresh" => with_client(order, |client, name| locks::Fresh::new(client.clone(), name)).await,
        "server" | "row" => {
            let mut locks = Vec::new();
            for name in order.names() {
                locks.push(Arc::new(sql::ByHand::open(order, &name).await));
            }
            run(order, &locks).await;
        }
        "lease" => with_client(order, |client, name| locks::Leased(client.mutex(name))).await,
        "fair" => with_client(order, |client, name| locks::Fair(client.fair_mutex(name))).await,
        "permit" => with_client(order, |client, name| locks::Permits(client.semaphore(name, 8))).await,
        "floor" => {
            let floor = floor::Floor::connect(&order.urls()[0]).await;
            laps(order, |name| floor.named(name)).await;
        }
        "pings" => {
            let floor = floor::Floor::connect(&order.urls()[0]).await;
            laps(order, |_| floor::TwoPings(floor.clone())).await;
        }
        "tokio" => {
            let one = Arc::new(tokio::sync::Mutex::new(()));
            laps(order, |_| locks::InProcess(Arc::clone(&one))).await;
        }
        "flock" => laps(order, |name| locks::Flock::open(order, name)).await,
        "store" => {
            let store = store::Store::connect(&order.urls()[0]).await;
            laps(order, |name| store.named(name)).await;
        }
        other => panic!("there is no {other}"),
    }
}

async fn with_client<L: Lock>(order: &Order, named: impl Fn(&Client, &str) -> L) {
    let client = connect(order).await;
    laps(order, |name| named(&client, name)).await;
}

/// A client of the server, or of the majority of several.
async fn connect(order: &Order) -> Client {
    let urls = order.urls();
    let url = if urls.len() > 1 { format!("redlock:{},admit=new", urls.join(",")) } else { urls[0].clone() };
    let url = order.text("hint").map_or(url.clone(), |hint| format!("{url}&hint={hint}"));
    Client::connect(url).await.expect("a server")
}

async fn laps<L: Lock>(order: &Order, named: impl Fn(&str) -> L) {
    let locks: Vec<Arc<L>> = order.names().iter().map(|name| Arc::new(named(name))).collect();
    run(order, &locks).await;
}

async fn run<L: Lock>(order: &Order, locks: &[Arc<L>]) {
    let own = order.workload == "cycle";
    heats(order, async |seconds| if own { cycle(locks, seconds).await } else { contend(locks, order, seconds).await }).await;
}
