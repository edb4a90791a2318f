//! The rights that a client's user needs: checked when connecting, printed by `doctor` and by `lockkeeper init --print`.

use super::columns::get;
use super::schema::Texts;
use super::statements::Live;
use super::{Config, error};
use crate::error::{Error, ErrorKind, Result};
use crate::store::sql::Failed;

/// What is needed on each table.
const NEEDED: [(&str, &str); 4] = [
    ("head", "SELECT, INSERT, UPDATE, DELETE"),
    ("part", "SELECT, INSERT, UPDATE, DELETE"),
    ("client", "SELECT, INSERT, UPDATE, DELETE"),
    ("store", "SELECT, UPDATE (floor)"),
];

/// The statements that give a user all rights that clients need.
pub(super) fn grants(config: &Config, user: &str) -> String {
    let schema = config.schema.as_deref().map(|schema| {
        let schema = super::config::quoted(schema);
        format!("GRANT USAGE ON SCHEMA {schema} TO {user};\n")
    });
    let tables = NEEDED.map(|(table, rights)| format!("GRANT {rights} ON {} TO {user};", config.table(table)));
    format!("{}{}", schema.unwrap_or_default(), tables.join("\n"))
}

/// In words, for `doctor`.
pub(super) fn in_words(config: &Config) -> String {
    let schema = config.schema.as_deref().map_or_else(String::new, |schema| format!("; USAGE on schema {schema}"));
    let tables = NEEDED.map(|(table, rights)| format!("{rights} on lockkeeper_{table}"));
    format!("{}{schema}", tables.join("; "))
}

/// A query with the tables on which a right is missing, and which one.
pub(super) fn query(table: impl Fn(&str) -> String) -> String {
    let mut checks = Vec::new();
    for (name, rights) in NEEDED {
        // The name as a text value: has_table_privilege parses it as an identifier.
        let quoted = table(name).replace('\'', "''");
        for right in rights.split(", ") {
            let has = match right.split_once(" (") {
                Some((right, column)) => {
                    format!("has_column_privilege('{quoted}', '{}', '{right}')", column.trim_end_matches(')'))
                }
                None => format!("has_table_privilege('{quoted}', '{right}')"),
            };
            checks.push(format!("SELECT '{right} on lockkeeper_{name}' WHERE NOT {has}"));
        }
    }
    checks.join(" UNION ALL ")
}

/// Refuses a user who lacks a right, with the statements that grant it.
pub(super) async fn check(live: &Live, config: &Config) -> Result<()> {
    let rows = live.client.query_typed(&live.texts.rights, &[]).await.map_err(|cause| error::of_request(cause).into_error())?;
    let missing: Vec<String> = rows.iter().map(|row| get(row, 0)).collect::<Result<_, Failed>>().map_err(Failed::into_error)?;
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!(
        "this user lacks rights in {config}: {}; have the owner of the tables run:\n{}",
        missing.join(", "),
        grants(config, &user(config))
    );
    Err(Error::new(ErrorKind::Denied, message))
}

/// The user of the URL, as statements name it.
pub(super) fn user(config: &Config) -> String {
    config.driver.get_user().map_or_else(|| "YOUR_USER".to_owned(), super::config::quoted)
}

/// All that somebody has to run who may create tables, for a user who may not.
pub(super) fn setup(config: &Config) -> String {
    let texts = Texts::new(config, 0);
    let grants = grants(config, &user(config));
    format!("BEGIN;\n{};\nCOMMIT;\n-- For a user who does not own the tables:\n{grants}\n", texts.create_all())
}
