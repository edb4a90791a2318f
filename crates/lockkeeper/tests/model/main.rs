//! The laws of the model, tried on random histories: one binary, so that the model is compiled against them once.

mod common;
mod counter;
mod fair;
mod kinds;
mod latch;
mod laws;
mod ledger;
mod mutex;
mod negative;
mod owners;
mod rows;
mod rwlock;
mod script;
mod semaphore;
mod tokens;
mod waiting;
