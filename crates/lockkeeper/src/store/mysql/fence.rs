//! The fence in the user's transaction: a share lock on a row that only grants write.
//!
//! MySQL has one strength of lock for writers. A share lock on the head row would block renewals of the own hold, so the fence has a table of
//! its own.

use super::MysqlStore;
use super::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::SqlFence;
use crate::name::Name;
use crate::store::sql::text;
use crate::token::Token;

impl MysqlStore {
    /// The statement that fences a transaction with the token of an exclusive hold.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for a token that no store of this kind has granted.
    pub fn fence(config: &Config, name: &Name, token: Token) -> Result<SqlFence> {
        let number = i64::try_from(token.number()).map_err(|_| {
            Error::new(ErrorKind::InvalidArgument, format!("the token {token} exceeds the maximum of {}", i64::MAX))
        })?;
        let (table, literal) = (config.table("fence"), format!("x'{}'", text::hex(name.as_str().as_bytes())));
        // The parameters of a driver stand in the order of the PostgreSQL statement: the name, then the token.
        let (text, literal) = (statement(&table, "?", "?"), statement(&table, &literal, &number.to_string()));
        Ok(SqlFence::new(text, literal, name.as_str(), number))
    }
}

/// A refused fence is an error of the database (1242, more than one row), so that nobody goes on who forgot to look at the answer. A locking
/// read sees the last commit, also in a transaction that reads an older snapshot.
fn statement(table: &str, name: &str, token: &str) -> String {
    format!(
        "SELECT IF(COUNT(*) = 1, 1, (SELECT 'lockkeeper: the lock was lost' UNION SELECT 'a later holder has it')) AS fence \
         FROM {table} WHERE name = {name} AND token = {token} LOCK IN SHARE MODE"
    )
}
