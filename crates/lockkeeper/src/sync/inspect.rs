//! Who holds the name of a handle.

use std::future::Future;

use super::call::Target;
use crate::backend::{Holder, Kind};
use crate::error::Result;

/// Who holds it now; nobody if nothing lies there.
pub(super) fn holders(target: &Target, kind: Kind) -> impl Future<Output = Result<Vec<Holder>>> + Send + use<> {
    let target = target.clone();
    async move {
        let name = target.name()?;
        match target.session.read(target.session.backend().inspect(name.clone())).await? {
            None => Ok(Vec::new()),
            Some(found) if found.kind == kind => Ok(found.holders),
            Some(found) => Err(found.kind.instead_of(kind, name)),
        }
    }
}

/// The methods of a handle that tell who holds it.
macro_rules! inspectable {
    ($handle:ident, $kind:expr, |$this:ident| $target:expr) => {
        impl $handle {
            /// Who holds it now, as the store knows it. It may have changed when the answer arrives.
            ///
            /// # Errors
            ///
            /// `WrongKind` if the name is in use by another kind; the store's errors.
            ///
            /// # Cancel safety
            ///
            /// Safe: it only reads.
            pub fn holders(
                &self,
            ) -> impl std::future::Future<Output = crate::Result<Vec<crate::backend::Holder>>> + Send + use<> {
                let $this = self;
                crate::sync::inspect::holders($target, $kind)
            }

            /// Whether anyone holds it now. It may have changed when the answer arrives: to act on it, acquire it.
            ///
            /// # Errors
            ///
            /// As [`holders`](Self::holders).
            ///
            /// # Cancel safety
            ///
            /// Safe: it only reads.
            #[doc(alias = "isLocked")]
            pub fn is_locked(&self) -> impl std::future::Future<Output = crate::Result<bool>> + Send + use<> {
                let holders = self.holders();
                async move { Ok(!holders.await?.is_empty()) }
            }
        }
    };
}

pub(super) use inspectable;
