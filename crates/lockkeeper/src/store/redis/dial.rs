//! How to reach a server: its address, the user, the certificates, and the settings of the socket.

use std::time::Duration;

use redis::io::tcp::socket2::TcpKeepalive;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use super::config::{Address, Config, Servers};
use super::error;
#[cfg(feature = "redis-sentinel")]
use super::sentinel;
use crate::error::Result;

/// A connection on which nothing happens is probed after the first time, then every second time; a connection that only waits for messages
/// would not notice otherwise that the machine at its other end is gone.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3));

/// Where the server is that this configuration means; of several the likeliest first.
pub(super) async fn places(config: &Config) -> Result<Vec<Address>> {
    match &config.servers {
        Servers::One(address) => Ok(vec![address.clone()]),
        #[cfg(feature = "redis-sentinel")]
        Servers::Sentinels { master, .. } => sentinel::masters(sentinels(config)?, master).await,
        // A URL with sentinels is refused where they are not built in.
        #[cfg(not(feature = "redis-sentinel"))]
        Servers::Sentinels { .. } => Ok(Vec::new()),
        Servers::Cluster(seeds) => Ok(seeds.clone()),
    }
}

/// How to reach the sentinels, if there are any, each with its address to show.
#[cfg(feature = "redis-sentinel")]
pub(super) fn sentinels(config: &Config) -> Result<Vec<(String, redis::Client)>> {
    let Servers::Sentinels { addresses, user, password, .. } = &config.servers else { return Ok(Vec::new()) };
    let reach = |address: &Address| {
        let info = info(config, address, user.as_deref(), password.as_deref(), 0)?;
        Ok((address.to_string(), client(config, info)?))
    };
    addresses.iter().map(reach).collect()
}

/// What the driver needs to know to reach a server of ours.
pub(super) fn to(config: &Config, address: &Address) -> Result<redis::Client> {
    let info = info(config, address, config.user.as_deref(), config.password.as_deref(), config.database)?;
    client(config, info)
}

fn info(config: &Config, address: &Address, user: Option<&str>, password: Option<&str>, database: u32) -> Result<ConnectionInfo> {
    // Messages need RESP3. Without them RESP2 does, which more servers speak.
    let protocol = if config.push { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
    let mut settings = RedisConnectionInfo::default().set_protocol(protocol).set_db(i64::from(database));
    if let Some(user) = user {
        settings = settings.set_username(user);
    }
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    let address = match (address, &config.tls) {
        (Address::Unix { path }, _) => ConnectionAddr::Unix(path.into()),
        (Address::Tcp { host, port }, None) => ConnectionAddr::Tcp(host.clone(), *port),
        (Address::Tcp { host, port }, Some(tls)) => {
            ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: tls.accept_anybody, tls_params: None }
        }
    };
    let info = address.into_connection_info().map_err(|error| error::of_connecting(error, config))?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE.0).with_interval(KEEPALIVE.1);
    let tcp = info.tcp_settings().clone().set_nodelay(true).set_keepalive(keepalive);
    Ok(info.set_tcp_settings(tcp).set_redis_settings(settings))
}

#[cfg(feature = "redis-tls")]
fn client(config: &Config, info: ConnectionInfo) -> Result<redis::Client> {
    use crate::error::{Error, ErrorKind};
    let failed = |error| error::of_connecting(error, config);
    let Some(tls) = &config.tls else { return redis::Client::open(info).map_err(failed) };
    // A program that chose one itself keeps it.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let read = |file: &std::path::PathBuf| {
        let read = crate::runtime::read_file(file).map(|(_, bytes)| bytes);
        read.map_err(|why| Error::new(ErrorKind::Config, format!("cannot read {}: {why}", file.display())))
    };
    let client_tls = match &tls.certificate {
        Some((certificate, key)) => Some(redis::ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? }),
        None => None,
    };
    let certificates = redis::TlsCertificates { client_tls, root_cert: tls.ca.as_ref().map(read).transpose()? };
    redis::Client::build_with_tls(info, certificates).map_err(failed)
}

#[cfg(not(feature = "redis-tls"))]
fn client(config: &Config, info: ConnectionInfo) -> Result<redis::Client> {
    redis::Client::open(info).map_err(|error| error::of_connecting(error, config))
}
