//! Our own files: `store = "URL"`, or a section that says the same in more words, or the name of a Redisson file.

use super::parts::{Parts, Servers, check_address};
use super::tree::{Table, Value};

/// What a file names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named {
    Url(String),
    /// A file of Redisson's, beside this one.
    Redisson(String),
}

const SETTINGS: [&str; 4] = ["store", "redis", "redlock", "redisson"];

const OF_REDIS: [&str; 17] = [
    "address",
    "socket",
    "sentinels",
    "master",
    "cluster",
    "database",
    "user",
    "password",
    "sentinel_user",
    "sentinel_password",
    "tls",
    "replicas",
    "aof",
    "durable_within",
    "tokens",
    "eviction",
    "sharded",
];

const OF_TLS: [&str; 4] = ["ca", "cert", "key", "insecure"];
const OF_REDLOCK: [&str; 3] = ["servers", "max_lease", "admit"];

pub(super) fn named(file: Value) -> Result<Named, String> {
    let mut file = file.table()?;
    file.knows(&SETTINGS, &[])?;
    let mut found = Vec::new();
    found.extend(file.text("store")?.map(Named::Url));
    found.extend(file.text("redisson")?.map(Named::Redisson));
    if let Some(section) = file.section("redis")? {
        found.push(Named::Url(redis(section)?));
    }
    if let Some(section) = file.section("redlock")? {
        found.push(Named::Url(redlock(section)?));
    }
    let one = found.pop();
    match (one, found.is_empty()) {
        (Some(Named::Url(url)), true) if url.starts_with("config:") => {
            Err("store names a config file again; name a store".to_owned())
        }
        (Some(one), true) => Ok(one),
        (None, _) => Err("names no store; write for example store = \"redis://127.0.0.1\"".to_owned()),
        (Some(_), false) => Err("names several stores; keep one of store, redis, redlock and redisson".to_owned()),
    }
}

fn redis(mut section: Table) -> Result<String, String> {
    section.knows(&OF_REDIS, &[])?;
    let mut places = Vec::new();
    places.extend(section.text("address")?.map(Servers::One));
    places.extend(section.text("socket")?.map(Servers::Socket));
    let (sentinels, master) = (section.texts("sentinels")?, section.text("master")?);
    let watched = !sentinels.is_empty();
    match (watched, master) {
        (true, Some(master)) => places.push(Servers::Sentinels { addresses: sentinels, master }),
        (false, None) => {}
        _ => return Err("redis: sentinels and master go together".to_owned()),
    }
    let cluster = section.texts("cluster")?;
    if !cluster.is_empty() {
        places.push(Servers::Cluster(cluster));
    }
    let place = match (places.pop(), places.is_empty()) {
        (Some(place), true) => place,
        _ => return Err("redis: name the server by exactly one of address, socket, sentinels and cluster".to_owned()),
    };
    match &place {
        Servers::One(address) => check_address(address)?,
        Servers::Sentinels { addresses, .. } | Servers::Cluster(addresses) => {
            addresses.iter().try_for_each(|address| check_address(address))?;
        }
        Servers::Socket(_) => {}
    }
    let mut options = Vec::new();
    let tls = section.switch("tls")?;
    let encrypted = tls.is_some();
    if let Some(mut tls) = tls {
        tls.knows(&OF_TLS, &[])?;
        for option in OF_TLS {
            options.extend(tls.text(option)?.map(|value| (option, value)));
        }
    }
    for option in ["sentinel_user", "sentinel_password", "replicas", "aof", "durable_within", "tokens", "eviction", "sharded"] {
        options.extend(section.text(option)?.map(|value| (option, value)));
    }
    let parts = Parts {
        place,
        tls: encrypted,
        user: section.text("user")?,
        password: section.text("password")?,
        database: section.text("database")?,
        options,
    };
    Ok(parts.url())
}

fn redlock(mut section: Table) -> Result<String, String> {
    section.knows(&OF_REDLOCK, &[])?;
    let mut items = section.texts("servers")?;
    if items.is_empty() {
        return Err("redlock: name the servers; for example servers = [\"redis://a\", \"redis://b\", \"redis://c\"]".to_owned());
    }
    if items.iter().any(|url| url.contains(',')) {
        return Err("redlock: a comma in a server's URL is written %2C".to_owned());
    }
    items.extend(section.text("max_lease")?.map(|lease| format!("max-lease={lease}")));
    items.extend(section.text("admit")?.map(|admit| format!("admit={admit}")));
    Ok(format!("redlock:{}", items.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Result<String, String> {
        match named(Value::of_toml(text)?)? {
            Named::Url(url) => Ok(url),
            Named::Redisson(file) => Ok(format!("see {file}")),
        }
    }

    #[test]
    fn every_place_can_be_said() {
        for (text, expected) in [
            ("store = \"memory:jobs\"", "memory:jobs"),
            (
                "store = \"postgres://me:p%40@a,b:5433/orders?schema=locks&sslmode=require\"",
                "postgres://me:p%40@a,b:5433/orders?schema=locks&sslmode=require",
            ),
            ("redisson = \"r.yaml\"", "see r.yaml"),
            ("[redis]\naddress = \"db:6380\"\ndatabase = 3", "redis://db:6380/3"),
            ("[redis]\naddress = \"[::1]:6380\"\nuser = \"me\"\npassword = \"p@:/?\"", "redis://me:p%40%3A%2F%3F@[::1]:6380/0"),
            ("[redis]\nsocket = \"/run/my redis.sock\"\npassword = \"x\"", "redis+unix://:x@localhost/run/my%20redis.sock?db=0"),
            (
                "[redis]\nsentinels = [\"a:1\", \"b\"]\nmaster = \"my master\"\nsentinel_password = \"&\"\nreplicas = 2",
                "redis+sentinel://a:1,b/my%20master/0?sentinel_password=%26&replicas=2",
            ),
            ("[redis]\ncluster = [\"a\", \"b:2\"]\nsharded = \"off\"\ntls = true", "rediss+cluster://a,b:2/0?sharded=off"),
            (
                "[redis]\naddress = \"h\"\n[redis.tls]\nca = \"/etc/ca.pem\"\ncert = \"c\"\nkey = \"k\"",
                "rediss://h/0?ca=%2Fetc%2Fca.pem&cert=c&key=k",
            ),
            (
                "[redlock]\nservers = [\"redis://a\", \"redis://b\", \"redis://c\"]\nmax_lease = \"90s\"\nadmit = \"new\"",
                "redlock:redis://a,redis://b,redis://c,max-lease=90s,admit=new",
            ),
        ] {
            assert_eq!(url(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_in_one_line() {
        for (text, says) in [
            ("", "names no store"),
            ("stroe = \"redis://me:secret@h\"", "did you mean store?"),
            ("store = [7]", "is not a text"),
            ("store = \"config:other.toml\"", "names a config file again"),
            ("store = \"memory:\"\nredisson = \"x\"", "several stores"),
            ("redis = 7", "is not a section"),
            ("[redis]\nadress = \"h\"", "did you mean address?"),
            ("[redis]\naddress = \"h\"\npasword = \"secret\"", "did you mean password?"),
            ("[redis]\naddress = \"h\"\nsocket = \"s\"", "exactly one of"),
            ("[redis]\naddress = \"h/0?tokens=redisson\"", "HOST:PORT"),
            ("[redis]\nsentinels = [\"h\"]", "go together"),
            ("[redis]\naddress = \"h\"\ntls = \"yes\"", "true, false or a section"),
            ("[redis]\naddress = \"h\"\ntls = { cafile = \"x\" }", "did you mean ca?"),
            ("[redlock]\nadmit = \"new\"", "name the servers"),
            ("[redlock]\nservers = [\"redis://:a,b@h\"]", "%2C"),
        ] {
            let message = url(text).unwrap_err();
            assert!(message.contains(says) && !message.contains('\n') && !message.contains("secret"), "{text}: {message}");
        }
    }
}
