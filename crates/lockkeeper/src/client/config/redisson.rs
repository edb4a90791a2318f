//! Reads the YAML of Redisson: the options that decide where locks are stored and how. Java's pools, threads and timeouts are ignored.
//! Options under which Java and Rust would use different keys are refused.

use super::parts::{Parts, Servers, check_address};
use super::tree::{Table, Value};

/// The settings of a whole file that we look at.
const UNDERSTOOD: [&str; 10] = [
    "singleServerConfig",
    "sentinelServersConfig",
    "clusterServersConfig",
    "masterSlaveServersConfig",
    "replicatedServersConfig",
    "fairLockWaitTimeout",
    "nameMapper",
    "commandMapper",
    "username",
    "password",
];

const OF_SERVERS: [&str; 15] = [
    "address",
    "nodeAddresses",
    "sentinelAddresses",
    "masterName",
    "database",
    "username",
    "password",
    "sentinelUsername",
    "sentinelPassword",
    "shardedSubscriptionMode",
    "nameMapper",
    "commandMapper",
    "natMapper",
    "credentialsResolver",
    "sslVerificationMode",
];

const OF_TLS: [&str; 4] = ["sslTruststore", "sslKeystore", "sslVerificationMode", "credentialsResolver"];

/// What is Java's alone: at the top, and of servers.
const JAVA: [&str; 86] = [
    "addressResolverGroupFactory",
    "allowedClasses",
    "checkLockSyncedSlaves",
    "checkMasterLinkStatus",
    "checkSentinelsList",
    "checkSlaveStatusWithSyncing",
    "checkSlotsCoverage",
    "cleanUpKeysAmount",
    "clientName",
    "codec",
    "connectTimeout",
    "connectionListener",
    "connectionMinimumIdleSize",
    "connectionPoolSize",
    "credentialsReapplyInterval",
    "decodeInExecutor",
    "dnsMonitoring",
    "dnsMonitoringInterval",
    "eventLoopGroup",
    "executor",
    "failedSlaveCheckInterval",
    "failedSlaveNodeDetector",
    "failedSlaveReconnectionInterval",
    "idleConnectionTimeout",
    "keepAlive",
    "keepPubSubOrder",
    "lazyInitialization",
    "loadBalancer",
    "lockWatchdogBatchSize",
    "lockWatchdogTimeout",
    "masterConnectionMinimumIdleSize",
    "masterConnectionPoolSize",
    "maxCleanUpDelay",
    "minCleanUpDelay",
    "monitorIPChanges",
    "nettyExecutor",
    "nettyHook",
    "nettyThreads",
    "performanceMode",
    "pingConnectionInterval",
    "pingTimeout",
    "protocol",
    "readMode",
    "reconnectionDelay",
    "reconnectionTimeout",
    "referenceEnabled",
    "registrationKey",
    "reliableTopicWatchdogTimeout",
    "retryAttempts",
    "retryDelay",
    "retryInterval",
    "scanInterval",
    "scanMode",
    "sentinelsDiscovery",
    "slaveConnectionMinimumIdleSize",
    "slaveConnectionPoolSize",
    "slavesSyncTimeout",
    "sslCiphers",
    "sslEnableEndpointIdentification",
    "sslKeyManagerFactory",
    "sslKeystorePassword",
    "sslKeystoreType",
    "sslProtocols",
    "sslProvider",
    "sslTrustManagerFactory",
    "sslTruststorePassword",
    "subscriptionConnectionMinimumIdleSize",
    "subscriptionConnectionPoolSize",
    "subscriptionMode",
    "subscriptionTimeout",
    "subscriptionsPerConnection",
    "tcpKeepAlive",
    "tcpKeepAliveCount",
    "tcpKeepAliveIdle",
    "tcpKeepAliveInterval",
    "tcpNoDelay",
    "tcpUserTimeout",
    "threads",
    "timeout",
    "transportMode",
    "unlockLatchTimeout",
    "useLinuxNativeEpoll",
    "useObjectSerializer",
    "useScriptCache",
    "useThreadClassLoader",
    "writeBehindThreads",
];

/// The URL that means the same.
pub(super) fn url(file: Value) -> Result<String, String> {
    let mut file = file.table()?;
    if file.is_empty() {
        return Err("is empty; Redisson's files name servers, for example singleServerConfig".to_owned());
    }
    file.knows(&[&UNDERSTOOD[..], &OF_TLS].concat(), &JAVA)?;
    // Our queue counts in the same unit; with another one the two languages would serve each other out of turn.
    if file.text("fairLockWaitTimeout")?.is_some_and(|unit| unit != "300000") {
        return Err("fairLockWaitTimeout is not 300000, the only one that fair locks are shared with".to_owned());
    }
    for key in ["masterSlaveServersConfig", "replicatedServersConfig"] {
        if file.section(key)?.is_some() {
            return Err(format!("{key} is not supported; use sentinelServersConfig or clusterServersConfig"));
        }
    }
    let mut sections = Vec::new();
    for key in ["singleServerConfig", "sentinelServersConfig", "clusterServersConfig"] {
        sections.extend(file.section(key)?.map(|section| (key, section)));
    }
    let (Some((kind, mut section)), true) = (sections.pop(), sections.is_empty()) else {
        return Err("name the servers by one of singleServerConfig, sentinelServersConfig and clusterServersConfig".to_owned());
    };
    section.knows(&[&OF_SERVERS[..], &OF_TLS].concat(), &JAVA)?;
    refuse_mappers(&mut file)?;
    refuse_mappers(&mut section)?;
    let mut either = |key: &str| Ok::<_, String>(section.text(key)?.or(file.text(key)?));
    let (user, password, truststore, keystore, verification) = (
        either("username")?,
        either("password")?,
        either("sslTruststore")?,
        either("sslKeystore")?,
        either("sslVerificationMode")?,
    );
    let mut options = Vec::new();
    let (tls, place) = match kind {
        "singleServerConfig" => {
            let (tls, mut addresses) = addresses("address", section.texts("address")?)?;
            (tls, Servers::One(addresses.remove(0)))
        }
        "sentinelServersConfig" => {
            let (tls, addresses) = addresses("sentinelAddresses", section.texts("sentinelAddresses")?)?;
            let master = section.text("masterName")?.ok_or("sentinelServersConfig has no masterName")?;
            options.extend(section.text("sentinelUsername")?.map(|user| ("sentinel_user", user)));
            options.extend(section.text("sentinelPassword")?.map(|password| ("sentinel_password", password)));
            (tls, Servers::Sentinels { addresses, master })
        }
        _ => {
            let (tls, addresses) = addresses("nodeAddresses", section.texts("nodeAddresses")?)?;
            let mode = section.text("shardedSubscriptionMode")?.map(|mode| mode.to_lowercase());
            options.extend(mode.map(|mode| ("sharded", mode)));
            (tls, Servers::Cluster(addresses))
        }
    };
    if tls {
        options.extend(truststore.map(|file| pem(&file)).transpose()?.map(|file| ("ca", file)));
        if keystore.is_some() {
            return Err(
                "sslKeystore holds a certificate in a way that only Java reads; name cert and key in a file of ours".to_owned()
            );
        }
        if verification.is_some_and(|mode| mode == "NONE") {
            options.push(("insecure", "accept-any-certificate".to_owned()));
        }
    }
    let database = section.text("database")?;
    Ok(Parts { place, tls, user, password, database, options }.url())
}

/// Names that are changed on one side only would never meet.
fn refuse_mappers(section: &mut Table) -> Result<(), String> {
    for key in ["nameMapper", "commandMapper", "natMapper", "credentialsResolver"] {
        if section.text(key)?.is_some_and(|class| !class.contains("Default")) {
            return Err(format!("{key} is a program that only Java runs; without it the two languages would not meet"));
        }
    }
    Ok(())
}

/// Addresses without their schemes, and whether those speak TLS.
fn addresses(key: &str, urls: Vec<String>) -> Result<(bool, Vec<String>), String> {
    let mut secure = Vec::new();
    let mut addresses = Vec::new();
    for url in urls {
        let (scheme, address) = url.split_once("://").unwrap_or(("redis", &url));
        secure.push(match scheme {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return Err(format!("{key}: an address begins with redis:// or rediss://")),
        });
        check_address(address).map_err(|why| format!("{key}: {why}"))?;
        addresses.push(address.to_owned());
    }
    match secure.first() {
        None => Err(format!("{key} is missing")),
        Some(first) if secure.iter().all(|other| other == first) => Ok((*first, addresses)),
        Some(_) => Err(format!("{key}: some addresses speak TLS and some do not")),
    }
}

/// A file that both languages can read.
fn pem(url: &str) -> Result<String, String> {
    let file = url.strip_prefix("file:").unwrap_or(url);
    let file = file.strip_prefix("//").unwrap_or(file);
    if [".pem", ".crt", ".cer"].iter().any(|end| file.ends_with(end)) {
        return Ok(file.to_owned());
    }
    Err("sslTruststore is not a PEM file (.pem, .crt); only Java reads the others".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        url(Value::of_yaml(text)?.filled(&|variable| (variable == "REDIS_HOST").then(|| "db".to_owned()))?)
    }

    #[test]
    fn every_kind_of_server_is_found() {
        for (text, expected) in [
            (
                "singleServerConfig:\n  idleConnectionTimeout: 10000\n  retryAttempts: 4\n  password: null\n  clientName: null\n  address: \
                 \"redis://${REDIS_HOST:-127.0.0.1}:${REDIS_PORT:-6379}\"\n  database: 2\nthreads: 16\nnettyThreads: 32\ncodec: \
                 !<org.redisson.codec.Kryo5Codec> {}\ntransportMode: \"NIO\"\nlockWatchdogTimeout: 30000\n",
                "redis://db:6379/2",
            ),
            (
                "sentinelServersConfig:\n  masterName: mymaster\n  sentinelAddresses:\n  - redis://a:26379\n  - \"redis://b:26380\"\n  \
                 username: me\n  password: \"p@ss\"\n  sentinelPassword: s\n  readMode: SLAVE\n  loadBalancer: \
                 !<org.redisson.connection.balancer.RoundRobinLoadBalancer> {}\n  natMapper: !<org.redisson.api.DefaultNatMapper> {}\n",
                "redis+sentinel://me:p%40ss@a:26379,b:26380/mymaster/0?sentinel_password=s",
            ),
            (
                "clusterServersConfig:\n  nodeAddresses: [rediss://a:7000, rediss://b:7001]\n  shardedSubscriptionMode: OFF\n  \
                 sslTruststore: file:/etc/ca.pem\npassword: x\n",
                "rediss+cluster://:x@a:7000,b:7001/0?sharded=off&ca=%2Fetc%2Fca.pem",
            ),
            (
                "singleServerConfig: {address: 'valkeys://h:1', sslVerificationMode: NONE}",
                "rediss://h:1/0?insecure=accept-any-certificate",
            ),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_would_make_the_languages_miss_each_other_is_refused() {
        for (text, says) in [
            ("singleServerConfg:\n  address: redis://h:1", "did you mean singleServerConfig?"),
            ("singleServerConfig:\n  adress: redis://h:1", "did you mean address?"),
            ("singleServerConfig:\n  address: redis://${NOBODY}:1", "NOBODY is not set"),
            ("singleServerConfig:\n  password: secret", "address is missing"),
            ("singleServerConfig:\n  address: http://h:1", "begins with redis://"),
            ("singleServerConfig:\n  address: redis://h:1/3", "HOST:PORT"),
            ("singleServerConfig:\n  address: redis://h:1\n  nameMapper: !<com.example.Mapper> {}", "nameMapper is a program"),
            ("singleServerConfig:\n  address: redis://h:1\nfairLockWaitTimeout: 5000", "fairLockWaitTimeout"),
            ("sentinelServersConfig:\n  sentinelAddresses: [redis://h:1]", "no masterName"),
            ("clusterServersConfig:\n  nodeAddresses: [redis://h:1, rediss://i:1]", "some addresses speak TLS"),
            ("clusterServersConfig: {nodeAddresses: ['rediss://h:1'], sslTruststore: 'file:/a.jks'}", "not a PEM file"),
            ("replicatedServersConfig: {nodeAddresses: ['redis://h:1']}", "is not supported"),
            ("threads: 3", "name the servers"),
            ("", "is empty"),
        ] {
            let message = read(text).unwrap_err();
            assert!(message.contains(says) && !message.contains('\n') && !message.contains("secret"), "{text}: {message}");
        }
    }
}
