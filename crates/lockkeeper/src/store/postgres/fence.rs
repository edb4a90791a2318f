//! The fence in the user's transaction: `FOR KEY SHARE` on the head row, beside grants that lock it `FOR UPDATE`.

use super::PostgresStore;
use super::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::SqlFence;
use crate::name::Name;
use crate::token::Token;

impl PostgresStore {
    /// The statement that fences a transaction with the token of an exclusive hold.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for a token that no store of this kind has granted.
    pub fn fence(config: &Config, name: &Name, token: Token) -> Result<SqlFence> {
        let number = i64::try_from(token.number()).map_err(|_| {
            Error::new(ErrorKind::InvalidArgument, format!("the token {token} exceeds the maximum of {}", i64::MAX))
        })?;
        let hex: String = name.as_str().bytes().map(|byte| format!("{byte:02x}")).collect();
        let (text, literal) = (
            statement(&config.table("head"), "$1::bytea", "$2::int8"),
            statement(&config.table("head"), &format!("'\\x{hex}'::bytea"), &number.to_string()),
        );
        Ok(SqlFence::new(text, literal, name.as_str(), number))
    }
}

/// A refused fence is an error of the database, so that nobody goes on who forgot to look at the answer. The message is what cannot be
/// read as a number; it depends on the count, so that the planner does not compute it before.
///
/// `FOR SHARE` would be wrong: an open transaction would block renewals of its own hold.
fn statement(head: &str, name: &str, token: &str) -> String {
    format!(
        "WITH fence AS MATERIALIZED (SELECT 1 FROM {head} WHERE name = {name} AND token = {token} FOR KEY SHARE) \
         SELECT CASE count(*) WHEN 0 THEN concat('lockkeeper: the lock was lost, a later holder has it', repeat('!', count(*)::int4))::int4 \
         ELSE 1 END FROM fence"
    )
}
