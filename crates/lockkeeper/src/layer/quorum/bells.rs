//! Waiting by push: the bells of all servers as one.
//!
//! A release rings at every server that had a vote. A rival that got some votes and withdraws them rings too, but at few: so our bell
//! rings when a majority has rung at about the same time, or rivals would wake each other without end.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::Quorum;
use super::member::{Answer, locked};
use super::tally::majority;
use crate::backend::{Bell, Ringer, Watch};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, Instant, Runtime};

/// Rings that belong together are not further apart.
const TOGETHER: Duration = Duration::from_millis(100);

/// How long a server may take to listen.
const LISTENING: Duration = Duration::from_secs(3);

impl Quorum {
    pub(super) async fn listen(&self, watch: Watch) -> Result<Bell> {
        let (answers, mut answered) = mpsc::unbounded_channel();
        for seat in &self.seats {
            let watch = watch.clone();
            seat.ask(LISTENING, &answers, |voter| Box::pin(async move { voter.watch(watch).await }));
        }
        drop(answers);
        let mut bells: Vec<Option<Arc<Bell>>> = self.seats.iter().map(|_| None).collect();
        let mut why: Vec<Result<()>> =
            self.seats.iter().map(|_| Err(Error::new(ErrorKind::Unavailable, "did not answer in time"))).collect();
        while bells.iter().flatten().count() < majority(bells.len()) {
            let Some((index, answer)) = answered.recv().await else {
                return Err(self.without_majority("listen", &why));
            };
            match answer {
                Ok(bell) => {
                    why[index] = Ok(());
                    bells[index] = Some(Arc::new(bell));
                }
                Err(error) => why[index] = Err(error),
            }
        }
        let ringer = Ringer::default();
        let (listening, over) = oneshot::channel::<()>();
        runtime::spawn(ring_together(self.shared.runtime.clone(), bells, answered, ringer.clone(), over));
        Ok(Bell::new(&ringer, std::sync::Mutex::new(listening)))
    }
}

/// Rings when a majority has rung; takes up the bells of servers that come late; ends when nobody listens.
async fn ring_together(
    runtime: Runtime,
    mut bells: Vec<Option<Arc<Bell>>>,
    mut late: mpsc::UnboundedReceiver<Answer<Bell>>,
    ringer: Ringer,
    mut over: oneshot::Receiver<()>,
) {
    let rung: std::sync::Mutex<Vec<Option<Instant>>> = std::sync::Mutex::new(vec![None; bells.len()]);
    let mut all_there = false;
    loop {
        let heard = {
            let mut waiting: Vec<_> = bells
                .iter()
                .enumerate()
                .filter_map(|(index, bell)| Some((index, Arc::clone(bell.as_ref()?))))
                .map(|(index, bell)| {
                    Box::pin(async move {
                        bell.rung().await;
                        index
                    })
                })
                .collect();
            let mut any = pin!(poll_fn(|context| {
                let ready: Vec<usize> = waiting
                    .iter_mut()
                    .filter_map(|bell| match bell.as_mut().poll(context) {
                        Poll::Ready(index) => Some(index),
                        Poll::Pending => None,
                    })
                    .collect();
                if ready.is_empty() { Poll::Pending } else { Poll::Ready(ready) }
            }));
            tokio::select! {
                biased;
                _ = &mut over => return,
                ready = &mut any => Some(ready),
                more = late.recv(), if !all_there => {
                    match more {
                        Some((index, Ok(bell))) => bells[index] = Some(Arc::new(bell)),
                        Some(_) => {}
                        None => all_there = true,
                    }
                    None
                }
            }
        };
        let Some(ready) = heard else { continue };
        let (mut rung, now) = (locked(&rung), runtime.now());
        for index in ready {
            rung[index] = Some(now);
        }
        let lately = rung.iter().flatten().filter(|when| now.since(**when) <= TOGETHER).count();
        if lately >= majority(rung.len()) {
            rung.fill(None);
            ringer.ring();
        }
    }
}
