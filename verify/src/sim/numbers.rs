//! What tasks do with numbers that nobody owns: count-down latches and counting semaphores.

use lockkeeper::referee::What;

use super::work::{Worker, polled};

impl Worker {
    fn asks(&self, name: &str, change: i64) {
        self.trace.add(self.client, What::Asks { name: name.to_owned(), change });
    }

    /// Closes the latch, counts down, or waits until it is open.
    pub(super) async fn use_latch(&mut self, call: u64) -> bool {
        let latch = self.handle.latch("latch");
        match self.chance.u8(0..6) {
            0 => {
                let count = self.chance.u32(1..=2);
                self.asks("latch", count.into());
                drop(latch.try_set(count).await);
            }
            1 | 2 => {
                self.asks("latch", -1);
                let polls = self.chance.usize(0..40);
                if self.chance.u8(0..4) == 0 {
                    drop(polled(latch.count_down(), polls).await);
                } else {
                    drop(latch.count_down().await);
                }
            }
            _ => {
                // Perhaps nobody will open it.
                let limit = self.millis(2_000);
                let name = "latch".to_owned();
                self.trace.add(self.client, What::Call { call, name: name.clone() });
                let opened = latch.wait().timeout(limit).await.is_ok();
                self.trace.add(self.client, if opened { What::Opened { call, name } } else { What::Ended { call } });
            }
        }
        true
    }

    /// Adds permits, or takes some.
    pub(super) async fn use_jobs(&mut self) -> bool {
        let jobs = self.handle.counting_semaphore("jobs");
        let permits = self.chance.u32(1..=2);
        let choice = self.chance.u8(0..6);
        if choice < 3 {
            self.asks("jobs", permits.into());
            drop(jobs.release(permits).await);
            return true;
        }
        self.asks("jobs", -i64::from(permits));
        let (limit, polls) = (self.millis(400), self.chance.usize(0..40));
        let took = match choice {
            3 => jobs.try_acquire(permits).await.unwrap_or(false),
            4 => polled(jobs.acquire(permits), polls).await.is_some_and(|took| took.is_ok()),
            _ => jobs.acquire(permits).timeout(limit).await.is_ok(),
        };
        if took {
            self.trace.add(self.client, What::Took { name: "jobs".to_owned(), permits });
        }
        true
    }
}
