//! The blocking façade on a real server, in every place where it may be called.

use lockkeeper::blocking::Client;

use crate::server::{Flavour, Server};

/// More than a task may do before tokio makes it yield.
const MANY: usize = 1_000;

fn lock_many(url: &str, name: &str) {
    let client = Client::connect(url).unwrap();
    for _ in 0..MANY {
        client.mutex(name).lock().unwrap().release().unwrap();
    }
    client.close().unwrap();
}

fn server() -> Option<std::sync::Arc<Server>> {
    if let Some(why) = Server::missing(Flavour::Redis) {
        lockkeeper::conformance::skip("blocking", &why);
        return None;
    }
    Some(Server::shared(Flavour::Redis))
}

#[tokio::test]
async fn a_thousand_calls_pass_in_a_task_of_one_thread() {
    let Some(server) = server() else { return };
    let url = server.fresh_url();
    lock_many(&url, "main");
    tokio::spawn(async move { lock_many(&url, "task") }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_pass_in_a_task_of_many_threads() {
    let Some(server) = server() else { return };
    let url = server.fresh_url();
    tokio::spawn(async move { lock_many(&url, "task") }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_pass_in_block_in_place() {
    let Some(server) = server() else { return };
    let url = server.fresh_url();
    tokio::spawn(async move { tokio::task::block_in_place(|| lock_many(&url, "in place")) }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_pass_in_spawn_blocking() {
    let Some(server) = server() else { return };
    let url = server.fresh_url();
    tokio::task::spawn_blocking(move || lock_many(&url, "blocking")).await.unwrap();
}

/// The executor's only thread waits for the blocking one.
#[tokio::test]
async fn a_thousand_calls_pass_in_spawn_blocking_of_one_thread() {
    let Some(server) = server() else { return };
    let url = server.fresh_url();
    tokio::task::spawn_blocking(move || lock_many(&url, "blocking")).await.unwrap();
}
