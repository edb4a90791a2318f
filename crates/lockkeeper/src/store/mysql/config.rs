//! Which database: what a URL says.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use mysql_async::{Opts, OptsBuilder, SslOpts};

use crate::error::{Error, ErrorKind, Result};
use crate::store::sql::text::decoded;

/// How long connecting to one server may take, unless the URL says otherwise.
const CONNECTING: Duration = Duration::from_secs(5);

/// A connection on which nothing passes for so long is checked by TCP.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Where the store lies, and how to reach it.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    user: Option<String>,
    password: Option<String>,
    pub(super) servers: Vec<Server>,
    database: String,
    /// What the names of the tables begin with.
    prefix: String,
    pub(super) tls: TlsMode,
    authorities: Option<PathBuf>,
    pub(super) connecting: Duration,
    /// Whether waiters queue for a named lock, as a hint when to look.
    pub(super) hints: bool,
}

/// One server of the URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Server {
    Tcp(String, u16),
    Socket(String),
}

/// What is encrypted and checked, as the `--ssl-mode` of the mysql client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsMode {
    Disabled,
    /// Where the server has it.
    Preferred,
    Required,
    /// The certificate was issued by a known authority, for this host name.
    VerifyIdentity,
}

impl Config {
    /// Understands `mysql://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?OPTIONS`.
    ///
    /// Options: `socket`, `table`, `ssl-mode`, `ssl-ca`, `connect-timeout` (seconds), `hint` (`on` or `off`).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if it is something else. The password is in no message.
    pub fn parse(url: &str) -> Result<Self> {
        let refused = |message: &str| Error::new(ErrorKind::Config, message.to_owned());
        let example = "not a mysql URL; for example mysql://user@host:3306/database";
        let rest = url.split_once("://").ok_or_else(|| refused(example))?.1;
        let (base, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (at, database) = base.split_once('/').unwrap_or((base, ""));
        let (login, hosts) = at.rsplit_once('@').map_or((None, at), |(login, hosts)| (Some(login), hosts));
        let (user, password) = match login.map(|login| login.split_once(':').map_or((login, None), |(u, p)| (u, Some(p)))) {
            Some((user, password)) => (Some(decoded(user)?), password.map(decoded).transpose()?),
            None => (None, None),
        };
        let database = decoded(database)?;
        if database.is_empty() || database.contains('/') {
            return Err(refused("a mysql URL names a database; for example mysql://user@host:3306/database"));
        }
        let (mut servers, mut prefix, mut tls, mut connecting) = (Vec::new(), "lockkeeper".to_owned(), None, CONNECTING);
        let (mut authorities, mut hints) = (None, true);
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            let value = decoded(value)?;
            match key {
                "socket" if !value.is_empty() => servers.push(Server::Socket(value)),
                "table" => {
                    let fits = |text: &str| text.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
                    if value.is_empty() || value.len() > 40 || !fits(&value) {
                        return Err(refused("table= is up to 40 ASCII characters: a-z, A-Z, digits and underscores"));
                    }
                    prefix = value;
                }
                "ssl-ca" => authorities = Some(PathBuf::from(value)),
                "ssl-mode" => {
                    tls = Some(match value.to_ascii_lowercase().replace('_', "-").as_str() {
                        "disabled" => TlsMode::Disabled,
                        "preferred" => TlsMode::Preferred,
                        "required" => TlsMode::Required,
                        "verify-identity" => TlsMode::VerifyIdentity,
                        // The driver cannot check the authority alone.
                        _ => return Err(refused("ssl-mode= is disabled, preferred, required or verify-identity")),
                    });
                }
                "connect-timeout" => {
                    let seconds = value.parse().ok().filter(|seconds| (1..=60).contains(seconds));
                    let seconds = seconds.ok_or_else(|| refused("connect-timeout= is in whole seconds, 1 to 60"))?;
                    connecting = Duration::from_secs(seconds);
                }
                "hint" => {
                    hints = match value.as_str() {
                        "on" => true,
                        "off" => false,
                        _ => return Err(refused("hint= is on or off")),
                    }
                }
                _ => {
                    let message = "a mysql URL has the options socket, table, ssl-mode, ssl-ca, connect-timeout and hint";
                    return Err(refused(message));
                }
            }
        }
        for host in hosts.split(',').filter(|host| !host.is_empty()) {
            servers.push(server(host).ok_or_else(|| refused(example))?);
        }
        if servers.is_empty() {
            servers.push(Server::Tcp("localhost".to_owned(), 3306));
        }
        let tls = tls.unwrap_or(if authorities.is_some() { TlsMode::VerifyIdentity } else { TlsMode::Preferred });
        if tls == TlsMode::VerifyIdentity && authorities.is_none() {
            return Err(refused("ssl-mode=verify-identity needs ssl-ca=FILE, the certificates of authorities"));
        }
        Ok(Self { user, password, servers, database, prefix, tls, authorities, connecting, hints })
    }

    /// What the driver is told of one server.
    pub(super) fn options(&self, server: &Server, tls: TlsMode) -> Opts {
        let builder = OptsBuilder::default()
            .user(self.user.clone())
            .pass(self.password.clone())
            .db_name(Some(&self.database))
            .prefer_socket(false)
            .stmt_cache_size(0)
            .tcp_keepalive(Some(KEEPALIVE));
        let builder = match server {
            Server::Tcp(host, port) => builder.ip_or_hostname(host).tcp_port(*port),
            Server::Socket(path) => builder.socket(Some(path)),
        };
        if tls == TlsMode::Disabled || matches!(server, Server::Socket(_)) {
            return builder.into();
        }
        let checked = SslOpts::default()
            .with_danger_skip_domain_validation(tls != TlsMode::VerifyIdentity)
            .with_danger_accept_invalid_certs(tls != TlsMode::VerifyIdentity);
        let checked = match &self.authorities {
            Some(file) => checked.with_disable_built_in_roots(true).with_root_certs(vec![file.clone().into()]),
            None => checked,
        };
        builder.ssl_opts(Some(checked)).into()
    }

    /// A table of ours, as statements name it.
    pub(super) fn table(&self, name: &str) -> String {
        format!("`{}_{name}`", self.prefix)
    }

    /// The same with its database, for grants.
    pub(super) fn full_table(&self, name: &str) -> String {
        format!("`{}`.{}", self.database.replace('`', "``"), self.table(name))
    }

    pub(super) fn user(&self) -> &str {
        self.user.as_deref().unwrap_or("YOUR_USER")
    }

    /// The file with the certificates of authorities, if it cannot be used.
    pub(super) fn check_authorities(&self) -> Result<()> {
        let Some(file) = &self.authorities else { return Ok(()) };
        let read = crate::runtime::read_file(file).map_err(|cause| cause.to_string());
        match read.map(|(_, bytes)| String::from_utf8_lossy(&bytes).contains("-----BEGIN CERTIFICATE-----")) {
            Ok(true) => Ok(()),
            other => {
                let why = other.err().unwrap_or_else(|| "there is none".to_owned());
                let message = format!("cannot read the certificates in ssl-ca={}: {why}", file.display());
                Err(Error::new(ErrorKind::Config, message))
            }
        }
    }

    /// The same for one server, to be shown.
    pub(super) fn at(&self, server: &Server) -> Self {
        Self { servers: vec![server.clone()], ..self.clone() }
    }
}

/// `HOST`, `HOST:PORT`, `[IPV6]:PORT`.
fn server(text: &str) -> Option<Server> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':'))
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Some(3306), |port| port.parse().ok())?;
    let host = decoded(host).ok().filter(|host| !host.is_empty())?;
    Some(Server::Tcp(host, port))
}

impl fmt::Display for Config {
    /// The URL without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("mysql://")?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        let (mut hosts, mut options) = (Vec::new(), Vec::new());
        for server in &self.servers {
            match server {
                Server::Tcp(host, port) if host.contains(':') => hosts.push(format!("[{host}]:{port}")),
                Server::Tcp(host, port) => hosts.push(format!("{host}:{port}")),
                Server::Socket(path) => options.push(format!("socket={path}")),
            }
        }
        write!(f, "{}/{}", hosts.join(","), self.database)?;
        if self.prefix != "lockkeeper" {
            options.push(format!("table={}", self.prefix));
        }
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
            ("mysql://u:secret@h/db", "mysql://u@h:3306/db"),
            ("mariadb://u:s%40cret@a:1,b:2/db?table=locks", "mysql://u@a:1,b:2/db?table=locks"),
            ("mysql://u@/db?socket=/run/mysqld/mysqld.sock", "mysql://u@/db?socket=/run/mysqld/mysqld.sock"),
            ("mysql://u@[::1]:7/db?ssl-mode=REQUIRED", "mysql://u@[::1]:7/db"),
            ("mysql:///db", "mysql://localhost:3306/db"),
        ] {
            let config = Config::parse(url).unwrap();
            assert_eq!(config.to_string(), shown);
            assert!(!format!("{config:?}").contains("cret"));
        }
        assert_eq!(Config::parse("mysql://u:a%2Fb@h/db").unwrap().password.as_deref(), Some("a/b"));
    }

    #[test]
    fn a_bad_url_is_refused_in_words() {
        for (url, says) in [
            ("mysql://u:secret@h", "names a database"),
            ("mysql://u:secret@h:port/db", "not a mysql URL"),
            ("mysql://u:secret@h/db?colour=red", "has the options socket"),
            ("mysql://u:secret@h/db?ssl-mode=maybe", "ssl-mode= is"),
            ("mysql://u:secret@h/db?ssl-mode=verify-identity", "needs ssl-ca="),
            ("mysql://u:secret@h/db?ssl-mode=verify-ca&ssl-ca=f", "ssl-mode= is"),
            ("mysql://u:secret@h/db?table=a`b", "table= is"),
            ("mysql://u:secret@h/db?connect-timeout=0", "connect-timeout= is"),
            ("mysql://u:secret@h/db?hint=maybe", "hint= is"),
            ("mysql://u:se%zzcret@h/db", "not well encoded"),
        ] {
            let error = Config::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(says) && !format!("{error:?}").contains("cret@"), "{url}: {error:?}");
        }
    }
}
