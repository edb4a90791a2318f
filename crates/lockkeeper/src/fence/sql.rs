//! The fence inside a transaction of the user's own, for locks in an SQL database.

use std::fmt;

/// One statement for the beginning of your own transaction, in the database that has the locks.
///
/// The statement locks the row of the lock until your transaction ends. The next grant waits for that, and renewals do not. If a later
/// holder was granted the lock before, the statement fails, and the database undoes the transaction. No clock is involved: with it no update
/// is lost (P7), however long a process was paused.
///
/// Made by [`Client::sql_fence`](crate::Client::sql_fence). It has no type of a driver: give the text and the two parameters to yours.
///
/// ```no_run
/// # async fn transfer(client: lockkeeper::Client, mut database: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let guard = client.mutex("account:7").lock().await?;
/// let fence = client.sql_fence(&guard)?;
/// let transaction = database.transaction().await?; // begins after the grant
/// transaction.query(fence.text(), &[&fence.name(), &fence.token()]).await?; // first of all
/// transaction.execute("UPDATE account SET balance = balance - 10 WHERE id = 7", &[]).await?;
/// transaction.commit().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// On `mysql://` the parameters are `?` and `?`, in the same order, and a refused statement is error 1242: roll back. A transaction there is
/// not undone by an error alone.
///
/// `docs/guide/src/fencing.md` in the guide has the same for a shell script, and a whole program.
///
/// The next grant waits for the *transaction*, not for the lease. Bound it: `SET LOCAL idle_in_transaction_session_timeout = '10s'`.
#[derive(Clone, PartialEq, Eq)]
pub struct SqlFence {
    text: String,
    literal: String,
    name: Vec<u8>,
    token: i64,
}

impl SqlFence {
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn new(text: String, literal: String, name: &str, token: i64) -> Self {
        Self { text, literal, name: name.as_bytes().to_vec(), token }
    }

    /// The statement, with the parameters [`name`](Self::name) and [`token`](Self::token): `$1` and `$2` for PostgreSQL, `?` and `?` for MySQL.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first parameter: the name of the lock, as bytes (`bytea`, `VARBINARY`).
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The second parameter: the fencing token (`bigint`).
    #[must_use]
    pub fn token(&self) -> i64 {
        self.token
    }

    /// The statement with its values written into it, for scripts.
    ///
    /// ```no_run
    /// # async fn f(client: lockkeeper::Client) -> lockkeeper::Result<()> {
    /// let guard = client.mutex("account:7").lock().await?;
    /// let script = format!("BEGIN; {}; UPDATE account SET balance = 0 WHERE id = 7; COMMIT", client.sql_fence(&guard)?.literal());
    /// # guard.release().await }
    /// ```
    #[must_use]
    pub fn literal(&self) -> &str {
        &self.literal
    }
}

impl fmt::Debug for SqlFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqlFence").field(&self.literal).finish()
    }
}
