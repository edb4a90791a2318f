//! Part rows as arrays, one for each column: a statement has as many parameters for many rows as for one.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::statements::Parameter;
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::store::sql::rows::{NameRows, PartKey};
use crate::store::sql::text;
use crate::store::sql::{Failed, Outcome, Put};

/// A column of a row.
pub(super) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, Failed> {
    row.try_get(column).map_err(|cause| {
        Failed::Error(Error::new(ErrorKind::Protocol, "postgres answered something unexpected").with_source(cause))
    })
}

/// The part rows of some puts, as the columns of a statement.
#[derive(Default)]
pub(super) struct PartArrays<'a> {
    put: Columns<'a>,
    expires: Vec<i64>,
    details: Vec<String>,
    deleted: Columns<'a>,
}

#[derive(Default)]
struct Columns<'a> {
    names: Vec<&'a [u8]>,
    roles: Vec<i16>,
    seqs: Vec<i64>,
    owners: Vec<String>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, name: &'a Name, (role, seq, owner): PartKey) {
        self.names.push(name.as_str().as_bytes());
        self.roles.push(role.number().into());
        self.seqs.push(seq.cast_signed());
        self.owners.push(owner.to_string());
    }

    fn add<'b>(&'b self, parameters: &mut Vec<Parameter<'b>>) {
        parameters.push((&self.names, Type::BYTEA_ARRAY));
        self.add_keys(parameters);
    }

    fn add_keys<'b>(&'b self, parameters: &mut Vec<Parameter<'b>>) {
        parameters.push((&self.roles, Type::INT2_ARRAY));
        parameters.push((&self.seqs, Type::INT8_ARRAY));
        parameters.push((&self.owners, Type::TEXT_ARRAY));
    }
}

impl<'a> PartArrays<'a> {
    pub(super) fn of(puts: &'a [Put]) -> Self {
        let mut arrays = Self::default();
        for put in puts {
            for row in &put.parts {
                arrays.put.push(&put.name, row.part.key());
                arrays.expires.push(text::nanos(row.part.expires));
                // A detail is a plain structure, which can always be written.
                arrays.details.push(text::detail(&row.part).unwrap_or_default());
            }
            put.deleted.iter().for_each(|key| arrays.deleted.push(&put.name, *key));
        }
        arrays
    }

    pub(super) fn is_empty(&self) -> bool {
        self.put.names.is_empty() && self.deleted.names.is_empty()
    }

    pub(super) fn add_put<'b>(&'b self, parameters: &mut Vec<Parameter<'b>>) {
        self.put.add(parameters);
        self.add_put_values(parameters);
    }

    pub(super) fn add_put_values<'b>(&'b self, parameters: &mut Vec<Parameter<'b>>) {
        parameters.push((&self.expires, Type::INT8_ARRAY));
        parameters.push((&self.details, Type::TEXT_ARRAY));
    }

    pub(super) fn add_put_keys<'b>(&'b self, parameters: &mut Vec<Parameter<'b>>) {
        self.put.add_keys(parameters);
    }

    pub(super) fn add_deleted_keys<'b>(&'b self, parameters: &mut Vec<Parameter<'b>>) {
        self.deleted.add_keys(parameters);
    }

    pub(super) fn add_deleted<'b>(&'b self, parameters: &mut Vec<Parameter<'b>>) {
        self.deleted.add(parameters);
    }
}

/// The columns `version, token, body, parts` from `at` on, and the clock.
pub(super) fn name_rows(name: &Name, row: &Row, at: usize, clock: i64) -> Result<NameRows, Failed> {
    let (body, parts) = (get::<Option<&str>>(row, at + 2)?, get::<Option<&str>>(row, at + 3)?);
    NameRows::parse(name, clock, get(row, at)?, get(row, at + 1)?, body, parts).map_err(Failed::Error)
}

/// The answer of a put of one row that was refused. The head row is as it was when it was locked. The part rows are older if that had to be waited
/// for: then they count only if the head row says that there are none.
pub(super) fn refusal(name: &Name, row: &Row) -> Result<Outcome, Failed> {
    let mut rows = name_rows(name, row, 3, get(row, 7)?)?;
    if !get::<bool>(row, 8)? {
        if !rows.is_head_alone() {
            return Ok(Outcome::Outdated);
        }
        rows.parts.clear();
    }
    Ok(Outcome::Refused(Box::new(rows)))
}

pub(super) fn too_few() -> Failed {
    Failed::Error(Error::new(ErrorKind::Protocol, "postgres answered for fewer names than were asked for"))
}
