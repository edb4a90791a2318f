//! When all is well again, every waiter is served: each living machine asks for every name at once, and none may wait for long.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkeeper::referee::What;
use lockkeeper::sync::{Acquiring, Guard};

use super::Setting;
use super::plan::{MAX_LEASE, Plan};
use super::trace::Trace;
use super::work::{Lock, PERMITS, granted};
use super::world::Node;

/// So long a waiter may wait on a network without faults, whoever waits beside it.
const SERVED: Duration = Duration::from_secs(2);

/// Numbers of calls that no worker has.
const FIRST_CALL: u64 = 1_000_000;

/// One waiter, whose machine is well.
struct Waiter {
    client: u32,
    trace: Trace,
    lock: Lock,
    name: &'static str,
    call: u64,
}

impl Plan {
    /// Has each living machine ask for every name at once; who was not served, if anybody.
    pub(super) async fn serve_all(&self, director: &Node) -> Option<String> {
        if self.setting == Setting::RedLock {
            // A server's quarantine begins when it is asked for the first time after it restarted, and nobody may have asked since.
            for (handle, node) in self.machines.iter().filter(|one| one.serves()).map(|one| (one.handle.clone(), &one.node)) {
                node.start(async move { drop(handle.mutex("first").try_lock().await) });
            }
            director.sleep(MAX_LEASE + SERVED).await;
        }
        let names: &[(Lock, &str)] = match self.setting {
            // What several stores can grant by majority.
            Setting::RedLock => &[(Lock::Mutex, "mutex"), (Lock::Mutex, "second")],
            _ => &[
                (Lock::Mutex, "mutex"),
                (Lock::Mutex, "second"),
                (Lock::Fair, "fair"),
                (Lock::Write, "rw"),
                (Lock::Permits, "permits"),
            ],
        };
        let unserved = Arc::new(Mutex::new(Vec::new()));
        let living = self.machines.iter().zip(0..).filter(|(machine, _)| machine.serves());
        for (machine, client) in living {
            for ((lock, name), call) in names.iter().copied().zip(FIRST_CALL..) {
                let (handle, unserved) = (machine.handle.clone(), Arc::clone(&unserved));
                let waiter = Waiter { client, trace: self.air.trace.clone(), lock, name, call };
                machine.node.start(async move {
                    let error = match lock {
                        Lock::Fair => waiter.wait(handle.fair_mutex(name).lock()).await,
                        Lock::Write => waiter.wait(handle.rwlock(name).write()).await,
                        Lock::Permits => waiter.wait(handle.semaphore(name, PERMITS).acquire()).await,
                        _ => waiter.wait(handle.mutex(name).lock()).await,
                    };
                    if let Some(error) = error {
                        let what = format!("client {client} was not served on {name:?} within {SERVED:?}: {error}");
                        unserved.lock().unwrap_or_else(PoisonError::into_inner).push(what);
                    }
                });
            }
        }
        director.sleep(2 * SERVED).await;
        let unserved = unserved.lock().unwrap_or_else(PoisonError::into_inner);
        unserved.first().cloned()
    }
}

impl Waiter {
    /// Acquires and releases; why it could not.
    async fn wait<G: Guard>(self, acquiring: Acquiring<G>) -> Option<String> {
        let Self { client, trace, lock, name, call } = self;
        trace.add(client, What::Call { call, name: name.to_owned() });
        let guard = match acquiring.timeout(SERVED).await {
            Ok(guard) => guard,
            Err(error) => {
                trace.add(client, What::Ended { call });
                return Some(error.to_string());
            }
        };
        let owner = granted(&trace, lock, call, guard.held());
        trace.add(client, What::Release { name: name.to_owned(), owner: owner.clone() });
        if guard.release().await.is_ok() {
            trace.add(client, What::Released { name: name.to_owned(), owner });
        }
        None
    }
}
