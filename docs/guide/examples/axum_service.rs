//! A web service that makes one order per user at a time, with metrics, a readiness probe and an orderly end.
//!
//! Run with `cargo run -p lockkeeper-guide --example axum_service`, or choose store, address and how long an order takes:
//! `cargo run -p lockkeeper-guide --example axum_service redis://127.0.0.1:6379 127.0.0.1:8080 2`. Then:
//!
//! ```sh
//! curl -X POST localhost:8080/orders/ann  # 200, or 409 while another order of ann is being made, or 503 if its lock was lost
//! curl localhost:8080/ready               # 200, or 503 while the store does not answer
//! curl localhost:8080/metrics             # for Prometheus
//! lockkeeper -S URL release --yes order:ann   # in the middle of an order: it ends with 503 within a second
//! ```
//!
//! Ctrl-C or SIGTERM ends it: no new connections, the orders that run are finished, their locks are released, then the client is closed.
#![allow(clippy::disallowed_methods, reason = "the payment takes real time")]

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use lockkeeper::{Client, Error, ErrorKind};
use lockkeeper_guide::Outcome;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// What the handlers share. A client is cheap to clone, and one is enough for the process.
#[derive(Clone)]
struct Shop {
    client: Client,
    payment: Duration,
}

/// What is not a success: a status, and a line that says why.
type Refusal = (StatusCode, String);

/// The status of an error of the lock. A lost lock is a 503: the order was broken off, and the caller may try again.
fn refusal(error: &Error) -> Refusal {
    let status = match error.kind() {
        ErrorKind::Lost => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::InvalidName => StatusCode::BAD_REQUEST,
        _ if error.is_busy() => StatusCode::CONFLICT,
        _ if error.is_outage() => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, format!("{error}\n"))
}

/// Makes an order. A second one of the same user is refused at once, whichever server it comes to.
async fn order(State(shop): State<Shop>, Path(user): Path<String>) -> Result<String, Refusal> {
    let lock = shop.client.mutex(format!("order:{user}")).try_lock().await.map_err(|error| refusal(&error))?;
    let Some(guard) = lock else { return Err((StatusCode::CONFLICT, format!("an order of {user} is being made\n"))) };
    // If the lock is lost meanwhile, the payment is dropped and we learn it at once. If the browser goes away, axum drops all of this
    // function: the guard with it, which releases the lock.
    guard.run(tokio::time::sleep(shop.payment)).await.map_err(|error| refusal(&error))?;
    guard.release().await.map_err(|error| refusal(&error))?;
    Ok(format!("ordered for {user}\n"))
}

/// Whether this server should get requests: asks nobody, so a probe costs nothing.
async fn ready(State(shop): State<Shop>) -> StatusCode {
    if shop.client.is_connected() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// Returns when the process is told to end.
async fn told_to_end() {
    let mut terminate = signal(SignalKind::terminate()).expect("signals can be caught");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

#[tokio::main]
async fn main() -> Outcome {
    let mut words = std::env::args().skip(1);
    let store = words.next().unwrap_or_else(|| "memory:".to_owned());
    let address = words.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let payment = Duration::from_secs(words.next().map_or(Ok(2), |seconds| seconds.parse())?);

    // Before the client connects, so that nothing is missed.
    let metrics = PrometheusBuilder::new().install_recorder()?;
    // A short lease: a loss is noticed within a third of it.
    let client = Client::builder().lease(Duration::from_secs(3)).program("shop").connect(store).await?;
    let shop = Shop { client: client.clone(), payment };
    let service = Router::new()
        .route("/orders/{user}", post(order))
        .route("/ready", get(ready))
        .route("/metrics", get(move || async move { metrics.render() }))
        .with_state(shop);
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, service).with_graceful_shutdown(told_to_end()).await?;
    // All requests are answered. What is still being released in the background is waited for.
    client.close().await?;
    println!("closed");
    Ok(())
}
