//! The task that keeps the watch stream open, on the store's thread.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream;
use tokio::sync::mpsc;

use super::error::{Failed, of_request};
use super::keys;
use super::proto::{WatchRequest, WatchResponse};
use super::request::oldest;
use super::rpc::{Transport, WATCH};
use super::session::Session;
use super::watch::{Command, Mirrors, Todo};
use crate::backend::StoreEvent;
use crate::name::Name;
use crate::runtime::{self, Instant, jitter, log, within};

/// How long reading a list, or opening a stream, may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Between attempts to open a stream.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(1000));

/// How often idle watchers are looked for.
const SWEEP: Duration = Duration::from_secs(5);

type Listed = (Name, u64, Option<(Vec<super::proto::KeyValue>, i64)>);

/// Why a stream ended.
enum End {
    /// The store was dropped.
    Store,
    Stream,
}

/// Watches for as long as the store lives.
pub(super) async fn run(
    transport: Arc<Transport>,
    session: Weak<Session>,
    mirrors: Mirrors,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let (mut pause, mut lost) = (PAUSES.0, false);
    loop {
        let mut requests = mirrors.begin();
        // The server answers nothing before the first request.
        while requests.is_empty() {
            match commands.recv().await {
                // It is in what begins.
                Some(_) => requests = mirrors.begin(),
                None => return,
            }
        }
        // What is asked for from here on is sent too; what was asked for before is in `requests`.
        while commands.try_recv().is_ok() {}
        let requests_again = mirrors.begin();
        if std::mem::take(&mut lost)
            && let Some(session) = session.upgrade()
        {
            session.tell(&StoreEvent::EventsMissed);
        }
        let began = transport.runtime.now();
        match watch(&transport, &session, &mirrors, requests_again, &mut commands).await {
            End::Store => return,
            End::Stream => lost = true,
        }
        if transport.runtime.now().since(began) > LIMIT {
            pause = PAUSES.0;
        }
        transport.runtime.sleep_until(transport.runtime.now().plus(jitter(pause / 2, pause))).await;
        pause = (pause * 2).min(PAUSES.1);
        if session.upgrade().is_none() {
            return;
        }
    }
}

async fn watch(
    transport: &Arc<Transport>,
    session: &Weak<Session>,
    mirrors: &Mirrors,
    requests: Vec<WatchRequest>,
    commands: &mut mpsc::UnboundedReceiver<Command>,
) -> End {
    let namespace = &transport.config.namespace;
    let (sender, receiver) = mpsc::unbounded_channel();
    for request in requests {
        // The receiver is below.
        let _ = sender.send(namespace.watch(request));
    }
    let outgoing =
        stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|request| (request, receiver)) });
    let opened = within(LIMIT, Box::pin(transport.stream::<WatchRequest, WatchResponse>(WATCH, outgoing))).await;
    let (mut incoming, number) = match opened {
        Some(Ok(opened)) => opened,
        Some(Err(failed)) => {
            log!(debug, error = %failed.into_error(), "no watch stream; trying again");
            return End::Stream;
        }
        None => return End::Stream,
    };
    let (lists, mut listed) = mpsc::unbounded_channel::<Listed>();
    let mut sweep_at = transport.runtime.now().plus(SWEEP);
    loop {
        tokio::select! {
            // Events last: a flood of them must not keep new waiters from being watched for, nor the sweep from its time.
            biased;
            command = commands.recv() => match command {
                Some(Command::Send(request)) => drop(sender.send(namespace.watch(request))),
                Some(Command::Reopen) => {
                    transport.leave(number);
                    return End::Stream;
                }
                None => return End::Store,
            },
            Some((name, epoch, list)) = listed.recv() => {
                if !mirrors.listed(&name, epoch, list, transport.runtime.now()) {
                    transport.leave(number);
                    return End::Stream;
                }
            }
            () = transport.runtime.sleep_until(sweep_at) => {
                let now: Instant = transport.runtime.now();
                sweep_at = now.plus(SWEEP);
                mirrors.sweep(now).into_iter().for_each(|request| drop(sender.send(namespace.watch(request))));
            }
            message = incoming.message() => match message {
                Ok(Some(answer)) => todo(mirrors.take(namespace.told(answer)), transport, session, &lists),
                Ok(None) => {
                    transport.leave(number);
                    return End::Stream;
                }
                Err(status) => {
                    if !matches!(of_request(&status, &transport.config), Failed::NoLease) {
                        transport.leave(number);
                    }
                    log!(debug, %status, "the watch stream ended");
                    return End::Stream;
                }
            },
        }
    }
}

fn todo(todo: Todo, transport: &Arc<Transport>, session: &Weak<Session>, lists: &mpsc::UnboundedSender<Listed>) {
    match todo {
        Todo::Nothing => {}
        Todo::List(name, epoch) => {
            let (transport, lists) = (Arc::clone(transport), lists.clone());
            runtime::spawn(async move {
                let asked = Box::pin(transport.range(oldest(keys::prefix(&name), 0)));
                let list = within(LIMIT, asked).await.and_then(std::result::Result::ok).map(|answer| {
                    let revision = answer.header.map_or(0, |header| header.revision);
                    (answer.kvs, revision)
                });
                // The stream may have ended.
                let _ = lists.send((name, epoch, list));
            });
        }
        Todo::SessionGone(lease) => {
            let (transport, session) = (Arc::clone(transport), Weak::clone(session));
            runtime::spawn(async move {
                if let Some(session) = session.upgrade() {
                    // Somebody may have deleted the key by hand: the lease itself is asked for.
                    session.look(&transport, lease).await;
                }
            });
        }
        Todo::SessionTouched => {
            if let Some(session) = session.upgrade() {
                session.tell(&StoreEvent::EventsMissed);
            }
        }
    }
}
