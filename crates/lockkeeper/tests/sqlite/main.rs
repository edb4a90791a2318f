//! The SQLite store on real files, among real processes: the contract, death, and what can be wrong with a file.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

mod callers;
mod death;
mod files;
mod folder;
mod layout;
mod processes;
#[path = "../topology/scoped.rs"]
mod scoped;
mod wake;
mod worker;

mod contract {
    //! The SQLite store keeps the contract.

    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use lockkeeper::backend::Backend;
    use lockkeeper::conformance::{Harness, Time};
    use lockkeeper::runtime::Runtime;
    use lockkeeper::store::sqlite::{Config, SqliteStore};

    use crate::folder::Folder;
    use crate::scoped::Scoped;

    /// The file that several processes share, each case under a prefix of its own; see `processes`.
    pub(crate) const SHARED: &str = "LOCKKEEPER_TEST_SHARED_FILE";

    struct Sqlite(Folder);

    impl Harness for Sqlite {
        fn time(&self) -> Time {
            if std::env::var_os(SHARED).is_some() { Time::Crowded } else { Time::Real }
        }

        async fn open(&self, runtime: Runtime) -> Arc<dyn Backend> {
            let connect = |file: PathBuf| SqliteStore::connect(Config::file(file), &runtime);
            let Some(shared) = std::env::var_os(SHARED) else { return connect(self.0.file()).await.expect("a sound folder") };
            static LAST: AtomicU64 = AtomicU64::new(0);
            let prefix = format!("{}-{}:", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed));
            Arc::new(Scoped::new(connect(shared.into()).await.expect("a sound file"), prefix))
        }
    }

    lockkeeper::conformance!(Sqlite(Folder::new()));
}
