//! Bare numbers in Redis: Redisson's layout does not tell a latch or a semaphore from an application's own number.

use clap::Args;
use lockkeeper::Client;
use lockkeeper::backend::Kind;

use crate::exit::{Code, Failure};

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct JavaOption {
    /// The number is Redisson's: use it although lockkeeper did not make it
    #[arg(long)]
    pub(crate) java: bool,
}

/// Parses a number of permits.
pub(crate) fn permits(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|permits| *permits > 0)
        .ok_or_else(|| format!("a number of permits is 1 or more, up to {}", u32::MAX))
}

/// Refuses a number that lockkeeper did not mark as a `kind`, unless `java` says that Redisson made it.
pub(crate) async fn check(client: &Client, name: &str, kind: Kind, java: bool) -> Result<(), Failure> {
    if java {
        return Ok(());
    }
    match client.inspect(name).await? {
        Some(found) if !found.certain && found.kind != kind => Err(Failure::new(
            Code::Usage,
            format!(
                "{name:?} is a number that lockkeeper did not make, perhaps an application's own; say --java if Redisson made it as a {kind}"
            ),
        )),
        _ => Ok(()),
    }
}
