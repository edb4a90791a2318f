//! The parts of a Redis URL, to be put together with all that is special in them escaped.

use std::fmt::Write as _;

/// Where the servers are.
pub(super) enum Servers {
    One(String),
    Socket(String),
    Sentinels { addresses: Vec<String>, master: String },
    Cluster(Vec<String>),
}

pub(super) struct Parts {
    pub(super) place: Servers,
    pub(super) tls: bool,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: Option<String>,
    pub(super) options: Vec<(&'static str, String)>,
}

impl Parts {
    pub(super) fn url(&self) -> String {
        let mut who = self.user.as_deref().map(escaped).unwrap_or_default();
        if let Some(password) = &self.password {
            let _ = write!(who, ":{}", escaped(password));
        }
        if !who.is_empty() {
            who.push('@');
        }
        let security = if self.tls { "rediss" } else { "redis" };
        let database = escaped(self.database.as_deref().unwrap_or("0"));
        let mut options = self.options.clone();
        let mut url = match &self.place {
            Servers::One(address) => format!("{security}://{who}{address}/{database}"),
            Servers::Socket(path) => {
                options.push(("db", database));
                let at = if who.is_empty() { "" } else { "localhost" };
                format!("redis+unix://{who}{at}{}", path.split('/').map(escaped).collect::<Vec<_>>().join("/"))
            }
            Servers::Sentinels { addresses, master } => {
                format!("{security}+sentinel://{who}{}/{}/{database}", addresses.join(","), escaped(master))
            }
            Servers::Cluster(addresses) => format!("{security}+cluster://{who}{}/{database}", addresses.join(",")),
        };
        for (number, (option, value)) in options.iter().enumerate() {
            let _ = write!(url, "{}{option}={}", if number == 0 { '?' } else { '&' }, escaped(value));
        }
        url
    }
}

/// An address is `host:port`: anything else would be read as another part of the URL.
pub(super) fn check_address(address: &str) -> Result<(), String> {
    let fine = |character: char| character.is_alphanumeric() || matches!(character, '.' | '-' | '_' | ':' | '[' | ']');
    if !address.is_empty() && address.chars().all(fine) {
        return Ok(());
    }
    Err("an address is not understood; write HOST or HOST:PORT".to_owned())
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}
