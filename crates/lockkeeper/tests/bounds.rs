//! What may cross threads: fixed here, so that a change cannot take it away unseen.

use std::future::IntoFuture;

use lockkeeper::{
    Client, CountDownLatch, CountingSemaphore, Error, FairMutex, Held, Mutex, MutexGuard, Owner, Permit, RwLock, RwLockReadGuard,
    RwLockWriteGuard, Semaphore, Token,
};

fn shared<T: Send + Sync + Unpin + 'static>() {}

fn sent<T: Send>(_: &T) {}

#[test]
fn handles_guards_and_errors_are_send_and_sync() {
    shared::<Client>();
    shared::<Mutex>();
    shared::<FairMutex>();
    shared::<RwLock>();
    shared::<Semaphore>();
    shared::<CountingSemaphore>();
    shared::<CountDownLatch>();
    shared::<MutexGuard>();
    shared::<RwLockReadGuard>();
    shared::<RwLockWriteGuard>();
    shared::<Permit>();
    shared::<Held>();
    shared::<Owner>();
    shared::<Token>();
    shared::<Error>();
    shared::<lockkeeper::blocking::Client>();
    shared::<lockkeeper::blocking::LockGuard<MutexGuard>>();
}

#[tokio::test]
async fn futures_are_send() {
    let client = Client::connect("memory:").await.unwrap();
    let (mutex, rwlock, permits) = (client.mutex("m"), client.rwlock("r"), client.semaphore("s", 1));
    sent(&mutex.lock().into_future());
    sent(&mutex.try_lock().into_future());
    sent(&rwlock.read().into_future());
    sent(&permits.acquire().into_future());
    sent(&permits.resize(2));
    sent(&client.latch("l").wait().into_future());
    sent(&client.close());
    sent(&client.list("*"));
    let guard = mutex.lock().await.unwrap();
    sent(&guard.lost());
    sent(&guard.extend(std::time::Duration::from_secs(1)));
    sent(&guard.run(std::future::ready(())));
    sent(&guard.release());
    let writer = rwlock.write().await.unwrap();
    sent(&rwlock.downgrade(writer));
}
