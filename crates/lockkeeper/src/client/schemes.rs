//! The schemes of store URLs: the features that they need, and hints for what is not a URL.

/// A cargo feature, and whether it is built in.
pub(super) type Feature = (&'static str, bool);

const SQLITE: Feature = ("sqlite", cfg!(feature = "sqlite"));
const MYSQL: Feature = ("mysql", cfg!(feature = "mysql"));
const POSTGRES: Feature = ("postgres", cfg!(feature = "postgres"));
const ZOOKEEPER: Feature = ("zookeeper", cfg!(feature = "zookeeper"));
const ZOOKEEPER_TLS: Feature = ("zookeeper-tls", cfg!(feature = "zookeeper-tls"));
const ETCD: Feature = ("etcd", cfg!(feature = "etcd"));
const REDIS: Feature = ("redis", cfg!(feature = "redis-single"));
const SENTINEL: Feature = ("redis-sentinel", cfg!(feature = "redis-sentinel"));
const CLUSTER: Feature = ("redis-cluster", cfg!(feature = "redis-cluster"));
const TLS: Feature = ("redis-tls", cfg!(feature = "redis-tls"));

/// The schemes that exist, and the features that each needs.
pub(super) const SCHEMES: [(&str, &[Feature]); 19] = [
    ("memory", &[]),
    ("sqlite", &[SQLITE]),
    ("mysql", &[MYSQL]),
    ("mariadb", &[MYSQL]),
    ("postgres", &[POSTGRES]),
    ("postgresql", &[POSTGRES]),
    ("zookeeper", &[ZOOKEEPER]),
    ("zookeepers", &[ZOOKEEPER_TLS]),
    ("etcd", &[ETCD]),
    ("etcds", &[ETCD]),
    ("redis", &[REDIS]),
    ("rediss", &[TLS]),
    ("redis+unix", &[REDIS]),
    ("redis+sentinel", &[SENTINEL]),
    ("rediss+sentinel", &[SENTINEL, TLS]),
    ("redis+cluster", &[CLUSTER]),
    ("rediss+cluster", &[CLUSTER, TLS]),
    ("redlock", &[("redlock", cfg!(feature = "redlock"))]),
    ("config", &[("config", cfg!(feature = "config"))]),
];

/// What is to be added to the features to use a scheme, if anything is.
pub(super) fn lacking(scheme: &str, features: &[Feature]) -> Option<String> {
    let missing: Vec<&str> = features.iter().filter(|(_, built_in)| !built_in).map(|(feature, _)| *feature).collect();
    let plural = if missing.len() > 1 { "s" } else { "" };
    let (named, listed) = (missing.join("` and `"), missing.join("\", \""));
    (!missing.is_empty())
        .then(|| format!("{scheme}: needs the feature{plural} `{named}` of lockkeeper; add features = [\"{listed}\"], or build the program with --features all"))
}

pub(super) fn known() -> String {
    SCHEMES.map(|(scheme, _)| format!("{scheme}:")).join(", ")
}

/// What was probably meant by something that is not a URL: a file, or a server. Nothing that may contain a password is repeated.
pub(super) fn hint(url: &str) -> Option<String> {
    if url.contains('@') {
        return Some("a Redis URL begins with redis://".to_owned());
    }
    let is_port = |rest: &str| {
        let port = rest.split('/').next().unwrap_or_default();
        !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
    };
    if url.split_once(':').is_some_and(|(host, rest)| !host.contains('/') && is_port(rest)) {
        return Some(format!("did you mean redis://{url}?"));
    }
    if url == "localhost" || url.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_ipv4()) {
        return Some(format!("did you mean redis://{url}?"));
    }
    let is_file =
        (url.contains('/') && !url.contains("://")) || [".db", ".sqlite", ".sqlite3"].iter().any(|end| url.ends_with(end));
    is_file.then(|| format!("did you mean sqlite:{url}?"))
}

/// What may be said of a URL that was not understood: a password may be in it.
pub(super) fn shown(url: &str) -> String {
    if url.contains('@') { "that".to_owned() } else { format!("{url:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_whose_feature_is_off_names_the_feature() {
        let off = |feature| (feature, false);
        for (features, says) in [
            (&[][..], None),
            (&[("redis", true)], None),
            (
                &[off("redis")],
                Some(
                    "x: needs the feature `redis` of lockkeeper; add features = [\"redis\"], or build the program with --features all",
                ),
            ),
            (
                &[("redis-cluster", true), off("redis-tls")],
                Some(
                    "x: needs the feature `redis-tls` of lockkeeper; add features = [\"redis-tls\"], or build the program with --features all",
                ),
            ),
            (
                &[off("redis-cluster"), off("redis-tls")],
                Some(
                    "x: needs the features `redis-cluster` and `redis-tls` of lockkeeper; add features = [\"redis-cluster\", \"redis-tls\"], or build the program with --features all",
                ),
            ),
        ] {
            assert_eq!(lacking("x", features).as_deref(), says);
        }
    }
}
