//! Which database: what a URL says.

use std::fmt;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};

use crate::error::{Error, ErrorKind, Result};
use crate::store::sql::text::decoded;

/// Where the store lies, and how to reach it.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    pub(super) driver: tokio_postgres::Config,
    /// The schema of the tables; `None`: the first one of the user's search path.
    pub(super) schema: Option<String>,
    pub(super) push: bool,
    pub(super) tls: Tls,
}

/// How a server's certificate is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tls {
    /// The file with the certificates of authorities.
    pub(super) root: Option<String>,
    pub(super) verify: Verify,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Verify {
    /// Not at all: `prefer`, `require`.
    #[default]
    Nothing,
    /// Issued by a known authority: `verify-ca`.
    Authority,
    /// And for this host name: `verify-full`.
    Name,
}

/// How long connecting to one host may take.
pub(super) const CONNECTING: Duration = Duration::from_secs(3);

/// A connection on which nothing passes for so long is checked, so often, and ends after so many checks that were not answered.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(5), Duration::from_secs(5), 3);

/// Data that is not acknowledged for so long ends the connection.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

impl Config {
    /// Understands `postgres://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?OPTIONS`.
    ///
    /// Options: `schema`, `push=off`, `sslmode`, `sslrootcert`, and those of libpq that the driver knows.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if it is something else. The password is in no message.
    pub fn parse(url: &str) -> Result<Self> {
        let refused = |message: String| Error::new(ErrorKind::Config, message);
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut schema, mut push, mut tls, mut mode) = (None, true, Tls::default(), None);
        let mut rest = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            match (key, value) {
                ("schema", "") => return Err(refused("schema= needs a name".to_owned())),
                ("schema", name) => {
                    let name = decoded(name)?;
                    // Statements have their tables in braces until the names are known.
                    if name.contains(['{', '}']) {
                        return Err(refused("schema= cannot have braces in it".to_owned()));
                    }
                    schema = Some(name);
                }
                ("push", "on") => push = true,
                ("push", "off") => push = false,
                ("push", _) => return Err(refused("push= is on or off".to_owned())),
                ("sslrootcert", file) => tls.root = Some(decoded(file)?),
                ("sslmode", given) => {
                    let (known, verify) = match given {
                        "disable" => (SslMode::Disable, Verify::Nothing),
                        "allow" | "prefer" => (SslMode::Prefer, Verify::Nothing),
                        "require" => (SslMode::Require, Verify::Nothing),
                        "verify-ca" => (SslMode::Require, Verify::Authority),
                        "verify-full" => (SslMode::Require, Verify::Name),
                        _ => {
                            let message = "sslmode= is disable, allow, prefer, require, verify-ca or verify-full".to_owned();
                            return Err(refused(message));
                        }
                    };
                    (mode, tls.verify) = (Some(known), verify);
                }
                _ => rest.push(option),
            }
        }
        if tls.verify != Verify::Nothing && tls.root.is_none() {
            return Err(refused(
                "sslmode=verify-ca and verify-full need sslrootcert=FILE, the certificates of authorities".to_owned(),
            ));
        }
        // As libpq: with certificates of authorities at hand, `require` checks them.
        if tls.root.is_some() && tls.verify == Verify::Nothing && mode == Some(SslMode::Require) {
            tls.verify = Verify::Authority;
        }
        let plain = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        let mut driver: tokio_postgres::Config = plain.parse().map_err(|error: tokio_postgres::Error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            refused(format!("not a postgres URL{cause}; for example postgres://user@host:5432/database"))
        })?;
        if driver.get_hosts().is_empty() {
            driver.host("localhost");
        }
        driver.ssl_mode(mode.unwrap_or(SslMode::Prefer));
        if driver.get_connect_timeout().is_none() {
            driver.connect_timeout(CONNECTING);
        }
        if driver.get_tcp_user_timeout().is_none() {
            driver.tcp_user_timeout(UNACKNOWLEDGED);
        }
        // The driver does not tell its default of two hours from what was given.
        if !rest.iter().any(|option| option.starts_with("keepalives_idle=")) {
            driver.keepalives_idle(KEEPALIVE.0);
        }
        if driver.get_keepalives_interval().is_none() {
            driver.keepalives_interval(KEEPALIVE.1);
        }
        if driver.get_keepalives_retries().is_none() {
            driver.keepalives_retries(KEEPALIVE.2);
        }
        if driver.get_application_name().is_none() {
            driver.application_name("lockkeeper");
        }
        Ok(Self { driver, schema, push, tls })
    }

    /// How long it may take until a connection can be used: each host has its time to connect, and one the same for the rest.
    pub(super) fn opening(&self) -> Duration {
        let hosts = u32::try_from(self.driver.get_hosts().len()).unwrap_or(1);
        self.driver.get_connect_timeout().copied().unwrap_or(CONNECTING).saturating_mul(hosts.saturating_add(1))
    }

    /// The same for each host alone. The driver's own list of hosts is not used: a host that accepts and says nothing would hide the next.
    pub(super) fn servers(&self) -> Vec<Self> {
        let (hosts, ports) = (self.driver.get_hosts(), self.driver.get_ports());
        let alone = |(index, host): (usize, &Host)| {
            let from = &self.driver;
            let mut driver = tokio_postgres::Config::new();
            match host {
                Host::Tcp(host) => driver.host(host),
                #[cfg(unix)]
                Host::Unix(path) => driver.host_path(path),
            };
            ports.get(index).or(ports.first()).map(|port| driver.port(*port));
            from.get_hostaddrs().get(index).map(|address| driver.hostaddr(*address));
            from.get_user().map(|user| driver.user(user));
            from.get_password().map(|password| driver.password(password));
            from.get_dbname().map(|database| driver.dbname(database));
            from.get_options().map(|options| driver.options(options));
            from.get_application_name().map(|name| driver.application_name(name));
            from.get_connect_timeout().map(|time| driver.connect_timeout(*time));
            from.get_tcp_user_timeout().map(|time| driver.tcp_user_timeout(*time));
            from.get_keepalives_interval().map(|time| driver.keepalives_interval(time));
            from.get_keepalives_retries().map(|times| driver.keepalives_retries(times));
            driver.keepalives(from.get_keepalives()).keepalives_idle(from.get_keepalives_idle());
            driver.ssl_mode(from.get_ssl_mode()).channel_binding(from.get_channel_binding());
            driver.ssl_negotiation(from.get_ssl_negotiation()).load_balance_hosts(from.get_load_balance_hosts());
            driver.target_session_attrs(from.get_target_session_attrs());
            Self { driver, ..self.clone() }
        };
        hosts.iter().enumerate().map(alone).collect()
    }

    /// A table of ours, as statements name it.
    pub(super) fn table(&self, name: &str) -> String {
        match &self.schema {
            Some(schema) => format!("{}.lockkeeper_{name}", quoted(schema)),
            None => format!("lockkeeper_{name}"),
        }
    }
}

/// An identifier in quotes.
pub(super) fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

impl fmt::Display for Config {
    /// The URL without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        if let Some(user) = self.driver.get_user() {
            write!(f, "{user}@")?;
        }
        let (mut sockets, ports) = (Vec::new(), self.driver.get_ports());
        for (index, host) in self.driver.get_hosts().iter().enumerate() {
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
            let comma = if index > 0 { "," } else { "" };
            match host {
                Host::Tcp(host) => write!(f, "{comma}{host}:{port}")?,
                #[cfg(unix)]
                Host::Unix(path) => sockets.push(path.display().to_string()),
            }
        }
        write!(f, "/{}", self.driver.get_dbname().unwrap_or_default())?;
        let sockets = sockets.into_iter().map(|path| format!("host={path}"));
        let options: Vec<String> = sockets.chain(self.schema.iter().map(|schema| format!("schema={schema}"))).collect();
        if options.is_empty() { Ok(()) } else { write!(f, "?{}", options.join("&")) }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Config({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_understood_and_shown_without_its_password() {
        for (url, shown) in [
            ("postgres://u:secret@h/db", "postgres://u@h:5432/db"),
            ("postgresql://u@h:1/db?schema=locks&push=off", "postgres://u@h:1/db?schema=locks"),
            ("postgres://u:secret@a:1,b:2/db?connect_timeout=1", "postgres://u@a:1,b:2/db"),
            ("postgres://u@/db?host=/run/postgresql&port=5433", "postgres://u@/db?host=/run/postgresql"),
            ("postgres://u@h/db?schema=a%20b", "postgres://u@h:5432/db?schema=a b"),
        ] {
            let config = Config::parse(url).unwrap();
            assert_eq!(config.to_string(), shown);
            assert!(!format!("{config:?}").contains("secret"));
        }
        let several = Config::parse("postgres://u:secret@a,b:2/db?schema=s&sslmode=disable").unwrap();
        let alone: Vec<String> = several.servers().iter().map(Config::to_string).collect();
        assert_eq!(alone, ["postgres://u@a:5432/db?schema=s", "postgres://u@b:2/db?schema=s"]);
        let one = Config::parse("postgres://u:secret@h:3/db?connect_timeout=1&keepalives_retries=9").unwrap();
        assert_eq!(one.servers(), [one], "nothing of a URL is lost");
    }

    #[test]
    fn a_bad_url_is_refused_in_words() {
        for (url, says) in [
            ("postgres://u:secret@h/db?colour=red", "not a postgres URL"),
            ("postgres://u:secret@h/db?sslmode=maybe", "sslmode= is"),
            ("postgres://u:secret@h/db?sslmode=verify-full", "sslrootcert"),
            ("postgres://u:secret@h/db?push=maybe", "push= is on or off"),
            ("postgres://u:secret@h/db?schema=", "needs a name"),
            ("postgres://u:secret@h/db?schema=a%7Bstore%7D", "cannot have braces"),
            ("postgres://u:secret@h/db?schema=a%00", "not well encoded"),
            ("postgres://u:secret@h:port/db", "not a postgres URL"),
        ] {
            let error = Config::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(says) && !format!("{error:?}").contains("secret"), "{url}: {error:?}");
        }
    }

    #[test]
    fn an_identifier_cannot_leave_its_quotes() {
        let config = Config::parse("postgres://u@h/db?schema=a%22;drop").unwrap();
        assert_eq!(config.table("head"), "\"a\"\";drop\".lockkeeper_head");
    }
}
