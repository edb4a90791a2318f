//! Whole clients over a store in memory: the local queue, holds that pass from guard to guard, the keeper, releases and undos.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use shuttle::rand::{Rng as _, thread_rng};

use super::Flaw;
use super::explore::flaw;
use super::machine::Machine;
use super::notify::poll_times;
use crate::backend::{Acquire, Attempt, Backend, Capabilities, Kind, Reply};
use crate::layer::Layer;
use crate::store::memory::MemoryStore;
use crate::{Client, MutexGuard};

/// A wake-up that is lost costs a waiter at least this long: until it looks at the store again, or the keeper looks at its queue.
pub(super) const NOBODY_WAITED: Duration = Duration::from_millis(20);

/// The store as it is, or like one that sends notifications and nothing else by itself, as Redis does. It may also grant in two steps.
#[derive(Debug)]
pub(super) struct Like {
    inner: Arc<dyn Backend>,
    store: Arc<MemoryStore>,
    plain: bool,
}

impl Like {
    pub(super) fn over(store: &Arc<MemoryStore>) -> Arc<dyn Backend> {
        let inner: Arc<dyn Backend> = Arc::<MemoryStore>::clone(store);
        Arc::new(Self { inner, store: Arc::clone(store), plain: thread_rng().gen_bool(0.5) })
    }
}

impl Layer for Like {
    fn inner(&self) -> &Arc<dyn Backend> {
        &self.inner
    }

    fn over(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Self { inner, store: Arc::clone(&self.store), plain: self.plain })
    }

    fn capabilities(&self) -> Capabilities {
        let all = self.inner.capabilities();
        if !self.plain {
            return all;
        }
        Capabilities::new("memory")
            .with_kinds(&[Kind::Mutex, Kind::RwLock, Kind::Semaphore])
            .with_fencing()
            .with_hand_over()
            .with_hand_over_if_alone()
            .with_token_ranges()
            .with_any_name(true)
            .with_push(true)
            .with_refuses_late()
            .with_leases(all.min_lease, all.max_lease)
    }

    fn acquire(&self, request: Acquire) -> Reply<'_, Attempt> {
        Box::pin(async move {
            // A store on another machine: the answer takes a while.
            shuttle::thread::sleep(Duration::ZERO);
            if flaw() == Flaw::TwoStepGrants {
                let before = self.store.save();
                let answer = self.inner.acquire(request).await;
                shuttle::thread::sleep(Duration::ZERO);
                // What others changed since is overwritten.
                if matches!(answer, Ok(Attempt::Busy(_))) {
                    self.store.restore(&before);
                }
                return answer;
            }
            self.inner.acquire(request).await
        })
    }
}

/// A resource that one may use at a time, and whose tokens must grow.
#[derive(Debug, Default)]
pub(super) struct Resource {
    inside: AtomicU32,
    token: AtomicU64,
    pub(super) turns: AtomicU32,
}

impl Resource {
    fn used(&self, guard: &MutexGuard) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
        shuttle::thread::sleep(Duration::ZERO);
        let token = guard.token().map_or(0, u64::from);
        let before = self.token.swap(token, Ordering::SeqCst);
        assert!(token > before, "token {token} after {before}");
        self.turns.fetch_add(1, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Locks and releases so many times; a guard is released, or dropped, by chance.
async fn turns(client: Client, resource: Arc<Resource>, turns: u32) {
    for _ in 0..turns {
        let guard = client.mutex("a").lock().await.expect("nothing fails");
        resource.used(&guard);
        if thread_rng().gen_bool(0.8) {
            guard.release().await.expect("it was not lost");
        } else {
            drop(guard);
        }
    }
}

/// As [`turns`], once; given up after so many polls.
async fn gives_up(client: Client, resource: Arc<Resource>) {
    let polls = thread_rng().gen_range(0..6);
    let lock = async {
        let guard = client.mutex("a").lock().into_future().await.expect("nothing fails");
        resource.used(&guard);
    };
    poll_times(polls, lock).await;
}

/// Closes the clients; nothing may be left in the store.
pub(super) async fn end(clients: Vec<Client>, store: &MemoryStore) {
    for client in clients {
        client.close().await.expect("the store answers");
    }
    assert!(store.is_empty(), "something is left in the store");
}

pub(super) fn client(machine: &Machine, backend: &Arc<dyn Backend>) -> Client {
    Client::builder().runtime(machine.runtime()).with_backend(Arc::clone(backend)).expect("a good client")
}

/// Runs `threads` per client and `quitters` of the first one; all that do not give up get their turns, without waiting for a timer if nothing stalls.
fn compete(stalls: u32, clients: usize, threads: usize, quitters: usize) {
    Machine::run(stalls, |machine| async move {
        let store = Arc::new(MemoryStore::new(machine.runtime()));
        let backend = Like::over(&store);
        let clients: Vec<Client> = (0..clients).map(|_| client(&machine, &backend)).collect();
        let (resource, mut tasks) = (Arc::new(Resource::default()), Vec::new());
        for client in &clients {
            for _ in 0..threads {
                tasks.push(machine.start(turns(client.clone(), Arc::clone(&resource), 2)));
            }
        }
        for _ in 0..quitters {
            tasks.push(machine.start(gives_up(clients[0].clone(), Arc::clone(&resource))));
        }
        for task in tasks {
            task.await;
        }
        let wanted = u32::try_from(2 * clients.len() * threads).unwrap_or(0);
        assert!(resource.turns.load(Ordering::SeqCst) >= wanted, "somebody got no turn");
        if stalls == 0 && clients.len() == 1 {
            let waited = machine.jumped();
            assert!(waited < NOBODY_WAITED, "a wake-up was lost: all waited for {waited:?}");
        }
        end(clients, &store).await;
    });
}

pub(super) fn one_client() {
    compete(0, 1, 3, 0);
}

pub(super) fn cancelled() {
    compete(0, 1, 2, 1);
}

pub(super) fn stalls() {
    compete(40, 1, 2, 1);
}

pub(super) fn two_clients() {
    compete(if thread_rng().gen_bool(0.5) { 100 } else { 0 }, 2, 2, 0);
}
