//! Rows as text: the body of a head row, the parts of a name, and what a notification says.

use serde::{Deserialize, Serialize};

use super::Put;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Detail, Head, Part, Role, Roles, Wake};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::runtime::Instant;
use crate::store::kit::rows::{HeadRow, PartRow};

#[derive(Serialize, Deserialize)]
struct HeadBody {
    head: Option<Head>,
    #[serde(default, skip_serializing_if = "Roles::is_empty")]
    roles: Roles,
}

/// The body of a head row. The token has a column of its own.
pub(crate) fn head_body(row: &HeadRow<()>) -> Result<String> {
    serde_json::to_string(&HeadBody { head: row.head, roles: row.roles }).map_err(not_written)
}

pub(crate) fn parse_head(name: &Name, body: &str, token: u64) -> Result<HeadRow<()>> {
    let HeadBody { head, roles } = serde_json::from_str(body).map_err(|cause| not_read(name, cause))?;
    Ok(HeadRow { head, roles, peer: None, last_token: token })
}

pub(crate) fn detail(part: &Part) -> Result<String> {
    serde_json::to_string(&part.detail).map_err(not_written)
}

/// Parses the parts of a name: a JSON array of `[role, seq, owner, expires, detail]`, in any order.
pub(crate) fn parse_parts(name: &Name, text: &str) -> Result<Vec<PartRow<()>>> {
    let rows: Vec<(u8, i64, String, i64, String)> = serde_json::from_str(text).map_err(|cause| not_read(name, cause))?;
    let mut parts = Vec::with_capacity(rows.len());
    for (role, seq, owner, expires, detail) in rows {
        parts.push(parse_part(name, role, seq, &owner, expires, &detail)?);
    }
    parts.sort_unstable_by_key(|row| row.part.key());
    Ok(parts)
}

/// Makes a part row of its columns.
pub(crate) fn parse_part(name: &Name, role: u8, seq: i64, owner: &str, expires: i64, detail: &str) -> Result<PartRow<()>> {
    let Some(role) = Role::ALL.into_iter().find(|known| known.number() == role) else {
        let message = format!("a row of {name:?} has the unknown role {role}; a newer lockkeeper may have written it");
        return Err(Error::new(ErrorKind::Protocol, message));
    };
    let detail: Detail = serde_json::from_str(detail).map_err(|cause| not_read(name, cause))?;
    let owner: WireOwner = owner.parse()?;
    let expires = Instant::from_nanos(expires.cast_unsigned());
    Ok(PartRow { part: Part { role, seq: seq.cast_unsigned(), owner, expires, detail }, peer: None })
}

/// A point in time as a column keeps it.
pub(crate) fn nanos(at: Instant) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)
}

/// What a notification says. The name is in hexadecimal: a database may not have UTF-8 as its encoding.
pub(crate) fn payload(put: &Put) -> String {
    let hex = hex(put.name.as_str().as_bytes());
    let head = put.wake.head.map(|head| head.to_string()).unwrap_or_default();
    let free = if put.frees { format!(" {} {}", put.next, put.token) } else { String::new() };
    format!("{} {head} {hex}{free}", u8::from(put.wake.all))
}

/// What a notification tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) wake: Wake,
    /// The version and the token of a name that nothing lies under any more.
    pub(crate) free: Option<(i64, u64)>,
}

/// What a notification said; `None` if it is none of ours. Earlier versions end after the name.
pub(crate) fn parse_payload(text: &str) -> Option<(Name, Told)> {
    let mut words = text.split(' ');
    let (all, head, hex) = (words.next()?, words.next()?, words.next()?);
    let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()).collect();
    let name = Name::new(String::from_utf8(bytes?).ok()?).ok()?;
    let head = if head.is_empty() { None } else { Some(head.parse().ok()?) };
    let free = words.next().zip(words.next()).and_then(|(version, token)| Some((version.parse().ok()?, token.parse().ok()?)));
    Some((name, Told { wake: Wake { all: all == "1", head }, free }))
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // A string takes whatever is written to it.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A part of a URL, in which `%` and two digits stand for a byte.
pub(crate) fn decoded(text: &str) -> Result<String> {
    let refused = || Error::new(ErrorKind::Config, "a part of the URL is not well encoded; write % and two hexadecimal digits");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16)).ok_or_else(refused);
            let (high, low) = (digit()?, digit()?);
            u8::try_from(high * 16 + low).map_err(|_| refused())?
        } else {
            byte
        });
    }
    String::from_utf8(bytes).map_err(|_| refused()).and_then(|text| if text.contains('\0') { Err(refused()) } else { Ok(text) })
}

fn not_read(name: &Name, cause: serde_json::Error) -> Error {
    Error::new(ErrorKind::Protocol, format!("the rows of {name:?} cannot be parsed: {cause}")).with_source(cause)
}

fn not_written(cause: serde_json::Error) -> Error {
    Error::new(ErrorKind::Protocol, "a row cannot be written as JSON").with_source(cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::ClientId;

    #[test]
    fn a_notification_reads_back_what_it_says() {
        let name = Name::new("заказ 42 '\"").unwrap();
        let owner = WireOwner { client: ClientId::from_bits(7), number: 3 };
        for wake in
            [Wake { all: true, head: None }, Wake { all: false, head: Some(owner) }, Wake { all: true, head: Some(owner) }]
        {
            let put = |frees| Put {
                name: name.clone(),
                version: Some(1),
                next: -7,
                token: 9,
                grants: false,
                body: None,
                parts: Vec::new(),
                deleted: Vec::new(),
                wake,
                frees,
                lasting: true,
            };
            assert_eq!(parse_payload(&payload(&put(false))), Some((name.clone(), Told { wake, free: None })));
            assert_eq!(parse_payload(&payload(&put(true))), Some((name.clone(), Told { wake, free: Some((-7, 9)) })));
        }
        for foreign in ["", "hello", "1  zz", "1  6", "1  00"] {
            assert_eq!(parse_payload(foreign), None, "{foreign:?}");
        }
    }
}
