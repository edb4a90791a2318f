//! The SQLite store on real files, among real processes: the contract, death, and what can be wrong with a file.
#![allow(clippy::disallowed_methods, reason = "tests stand outside the simulation")]

mod death;
mod files;
mod folder;
mod processes;
mod worker;

mod contract {
    //! The SQLite store keeps the contract.

    use std::sync::Arc;

    use lockkeeper::backend::Backend;
    use lockkeeper::conformance::{Harness, Time};
    use lockkeeper::runtime::Runtime;
    use lockkeeper::store::sqlite::{Config, SqliteStore};

    use crate::folder::Folder;

    struct Sqlite(Folder);

    impl Harness for Sqlite {
        fn time(&self) -> Time {
            Time::Real
        }

        async fn open(&self, runtime: Runtime) -> Arc<dyn Backend> {
            SqliteStore::connect(Config::file(self.0.file()), &runtime).await.expect("a sound folder")
        }
    }

    lockkeeper::conformance!(Sqlite(Folder::new()));
}
