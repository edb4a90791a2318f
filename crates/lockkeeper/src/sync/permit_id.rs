//! Permits that leave the process that acquired them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::backend::Claim;
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::owner::WireOwner;

/// Names permits of a [`Semaphore`](crate::Semaphore) that no guard holds any more: see [`Permit::detach`](crate::Permit::detach).
///
/// It can be stored or sent as text: [`Display`](fmt::Display) and [`FromStr`] are inverse.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
/// # let client = lockkeeper::Client::connect("memory:").await?;
/// let id = client.semaphore("workers", 3).acquire_many(2).await?.detach();
/// assert_eq!((id.name(), id.permits()), ("workers", 2));
/// let text = id.to_string(); // send it to the worker
/// client.adopt(text.parse()?).await?.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PermitId {
    name: Name,
    owner: WireOwner,
    permits: u32,
    of: u32,
}

impl PermitId {
    pub(crate) fn new(name: Name, owner: WireOwner, claim: Claim) -> Self {
        let (permits, of) = if let Claim::Permits { take, of } = claim { (take, of) } else { (0, 0) };
        Self { name, owner, permits, of }
    }

    pub(crate) fn into_parts(self) -> (Name, WireOwner, Claim) {
        (self.name, self.owner, Claim::Permits { take: self.permits, of: self.of })
    }

    /// The name of the semaphore, with every prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// How many permits these are.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.permits
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}:{}", self.permits, self.of, self.owner, self.name)
    }
}

impl FromStr for PermitId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let read = || {
            let mut parts = text.splitn(4, ':');
            let (permits, of) = parts.next()?.split_once('/')?;
            let owner = format!("{}:{}", parts.next()?, parts.next()?);
            let name = Name::new(parts.next()?).ok()?;
            Some(Self { name, owner: owner.parse().ok()?, permits: permits.parse().ok()?, of: of.parse().ok()? })
        };
        read().ok_or_else(|| {
            let message = format!("{text:?} is not a permit id; expected <permits>/<size>:<client>:<number>:<name>");
            Error::new(ErrorKind::InvalidArgument, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::ClientId;

    #[test]
    fn a_permit_id_reads_back_what_it_prints() {
        let owner = WireOwner { client: ClientId::from_bits(7), number: 42 };
        let id = PermitId::new(Name::new("jobs:eu").unwrap(), owner, Claim::Permits { take: 2, of: 5 });
        assert_eq!(id.to_string(), "2/5:00000000-0000-0000-0000-000000000007:42:jobs:eu");
        assert_eq!(id.to_string().parse::<PermitId>().unwrap(), id);
        assert_eq!("jobs".parse::<PermitId>().unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}
