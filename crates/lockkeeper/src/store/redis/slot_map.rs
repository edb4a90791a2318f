//! What the servers of a cluster say about slots: redirections, and the map.

use redis::Value;

use super::config::Address;

/// What `CLUSTER SLOTS` tells: first slot, last slot, master.
pub(super) type Range = (u16, u16, Address);

/// Where a redirection points. Without a host it is that of the server that answered.
pub(super) fn redirected(error: &redis::RedisError, from: Option<&Address>) -> Option<Address> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = match (host, from) {
        ("" | "?", Some(Address::Tcp { host, .. })) => host.clone(),
        (host, _) => host.trim_start_matches('[').trim_end_matches(']').to_owned(),
    };
    Some(Address::Tcp { host, port: port.parse().ok()? })
}

/// Reads an answer to `CLUSTER SLOTS`; `None` if it is none. What names no server is left out.
pub(super) fn ranges(answer: &Value, from: &Address) -> Option<Vec<Range>> {
    let list = |value: &Value| match value {
        Value::Array(items) => Some(items.clone()),
        _ => None,
    };
    let number = |value: &Value| match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    };
    let mut ranges = Vec::new();
    for range in list(answer)? {
        let [first, last, master, ..] = &list(&range)?[..] else { return None };
        let [host, port, ..] = &list(master)?[..] else { return None };
        let host = match (host, from) {
            (Value::BulkString(host), _) if !host.is_empty() && host != b"?" => String::from_utf8(host.clone()).ok()?,
            // A server that does not know its own name: the one that answered.
            (_, Address::Tcp { host, .. }) => host.clone(),
            _ => continue,
        };
        ranges.push((number(first)?, number(last)?, Address::Tcp { host, port: number(port)? }));
    }
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn the_map_is_read_also_where_a_server_does_not_know_its_name() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let server = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let range = |first, last, server| Value::Array(vec![Value::Int(first), Value::Int(last), server]);
        let answer = Value::Array(vec![range(0, 99, server(text("h1"), 7000)), range(100, 16383, server(Value::Nil, 7001))]);
        assert_eq!(ranges(&answer, &at("asked", 7000)), Some(vec![(0, 99, at("h1", 7000)), (100, 16383, at("asked", 7001))]));
        assert_eq!(ranges(&text("no"), &at("asked", 1)), None);
    }
}
