//! Which store: the option, else the environment, else the config file, else the default.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use lockkeeper::{Builder, Client};

use crate::exit::{Code, Failure};
use crate::terminal::plain;
use crate::{config, system};

/// The store if none is named.
const DEFAULT: &str = "sqlite:";

const VARIABLE: &str = "LOCKKEEPER_STORE";

#[derive(Args, Clone, Debug)]
pub(crate) struct StoreOption {
    /// Store URL: sqlite:FILE on this machine, system: for all users of this machine, redis://HOST across machines, config:FILE for a config file [default: $LOCKKEEPER_STORE, else the config file, else
    /// sqlite: in your state directory]
    // Global: it may also come before the verb.
    #[arg(short = 'S', long, value_name = "URL", global = true)]
    store: Option<String>,
}

/// A store URL and where it comes from. The URL may contain a password: it is never printed.
pub(crate) struct Chosen {
    pub(crate) url: String,
    pub(crate) by: String,
}

/// The file of a store that is not there yet, if the first lock would make it.
pub(crate) fn missing(url: &str) -> Option<PathBuf> {
    let config = lockkeeper::store::sqlite::Config::parse(url).ok()?;
    // A directory that is missing is an error, and connecting says so; that of the default store is made.
    let is_made = url == DEFAULT || config.path().parent().is_none_or(|above| above.as_os_str().is_empty() || above.is_dir());
    // Whatever keeps us from looking is for connecting to say.
    (is_made && config.path().try_exists().is_ok_and(|exists| !exists)).then(|| config.path().to_owned())
}

/// Whether a store, or one server of a majority, exists inside one process only. `url` is as the library prints it.
pub(crate) fn is_private(url: &str) -> bool {
    match url.strip_prefix("redlock:") {
        Some(servers) => servers.split(',').any(is_private),
        None => url.starts_with("memory:"),
    }
}

impl StoreOption {
    /// The option as it stands on a command line that somebody types.
    pub(crate) const fn named(store: Option<String>) -> Self {
        Self { store }
    }

    /// Connects to the store. A store inside one process is refused: every lockkeeper is a process, so it would exclude nobody.
    pub(crate) async fn connect(&self, builder: Builder) -> Result<Client, Failure> {
        let client = builder.connect(&self.find()?.url).await?;
        if is_private(client.url()) {
            let message = "memory: lives inside one process, so no other lockkeeper sees its locks; use sqlite: on one machine, or redis://HOST across machines";
            return Err(Failure::new(Code::Usage, message));
        }
        Ok(client)
    }

    /// Connects for a verb that only looks. `Err` inside: there is no store yet, in words, and it is not made for that.
    pub(crate) async fn connect_existing(&self) -> Result<Result<Client, String>, Failure> {
        match missing(&self.find()?.url) {
            Some(file) => Ok(Err(format!("{} does not exist yet; the first lock creates it", plain(&file.to_string_lossy())))),
            None => self.connect(Client::builder()).await.map(Ok),
        }
    }

    /// Finds the store.
    pub(crate) fn find(&self) -> Result<Chosen, Failure> {
        let chosen = self.choose()?;
        if chosen.url == system::URL { Ok(Chosen { url: system::url()?, ..chosen }) } else { Ok(chosen) }
    }

    fn choose(&self) -> Result<Chosen, Failure> {
        if let Some(url) = &self.store {
            return Ok(Chosen { url: url.clone(), by: "-S".to_owned() });
        }
        if let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            let url = value.into_string();
            let url = url.map_err(|_| Failure::new(Code::Usage, format!("{VARIABLE} is not UTF-8; set it to a store URL")))?;
            return Ok(Chosen { url, by: format!("${VARIABLE}") });
        }
        if let Some(file) = config::find()? {
            let by = file.display().to_string();
            let unnamed = || Failure::new(Code::Usage, format!("the config file {by}: its name is not UTF-8"));
            return Ok(Chosen { url: format!("config:{}", file.to_str().ok_or_else(unnamed)?), by });
        }
        Ok(Chosen { url: DEFAULT.to_owned(), by: "default (no -S, no $LOCKKEEPER_STORE, no config file)".to_owned() })
    }
}

impl StoreOption {
    /// Gives a command the store's URL, so that a lockkeeper inside it uses the same store: another one would exclude nobody. Without passwords, unless
    /// it is to have them: then such a lockkeeper is refused by the server, in words. A store that is found by itself is found there, too.
    pub(crate) fn pass_on(&self, command: &mut Command, with_password: bool) {
        let inherited = || std::env::var(VARIABLE).ok().filter(|url| !url.is_empty());
        let Some(url) = self.store.clone().or_else(inherited) else { return };
        let url = absolute(&url);
        command.env(VARIABLE, if with_password { url } else { without_passwords(&url) });
    }
}

/// The same place after a change of the directory.
fn absolute(url: &str) -> String {
    let Some((scheme @ ("sqlite" | "config"), rest)) = url.split_once(':') else { return url.to_owned() };
    let (file, options) = rest.split_once('?').map_or((rest, None), |(file, options)| (file, Some(options)));
    match std::path::absolute(file) {
        // An empty path is refused: the file of `sqlite:` is found by itself.
        Ok(file) => match (file.to_str(), options) {
            (Some(file), None) => format!("{scheme}:{file}"),
            (Some(file), Some(options)) => format!("{scheme}:{file}?{options}"),
            (None, _) => url.to_owned(),
        },
        Err(_) => url.to_owned(),
    }
}

/// The URL, or the list of URLs, without passwords.
fn without_passwords(url: &str) -> String {
    match url.strip_prefix("redlock:") {
        Some(servers) => format!("redlock:{}", servers.split(',').map(without_password).collect::<Vec<_>>().join(",")),
        None => without_password(url),
    }
}

fn without_password(url: &str) -> String {
    let (place, query) = url.split_once('?').map_or((url, None), |(place, query)| (place, Some(query)));
    let place = match place.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?))) {
        Some((scheme, (who, rest))) => match who.split(':').next().unwrap_or_default() {
            "" => format!("{scheme}://{rest}"),
            user => format!("{scheme}://{user}@{rest}"),
        },
        None => place.to_owned(),
    };
    let options: Vec<_> = query.into_iter().flat_map(|query| query.split('&')).filter(|option| !is_password(option)).collect();
    if options.is_empty() { place } else { format!("{place}?{}", options.join("&")) }
}

fn is_password(option: &str) -> bool {
    option.split('=').next().is_some_and(|name| name.ends_with("password"))
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chosen").field("by", &self.by).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_gets_the_store_with_an_absolute_path_and_without_passwords() {
        let told = |url: &str, with_password| {
            let mut command = Command::new("true");
            StoreOption::named(Some(url.to_owned())).pass_on(&mut command, with_password);
            let told = command.get_envs().find(|(name, _)| *name == VARIABLE).and_then(|(_, value)| value);
            told.unwrap_or_default().to_str().unwrap_or_default().to_owned()
        };
        let secret = "redis://me:secret@h:1/0?sentinel_password=other&replicas=1";
        assert_eq!(told(secret, false), "redis://me@h:1/0?replicas=1");
        assert_eq!(told(secret, true), secret);
        let here = std::env::current_dir().unwrap();
        assert_eq!(told("sqlite:a.db?x=1", false), format!("sqlite:{}/a.db?x=1", here.display()));
        for same in ["sqlite:", "sqlite:/a.db", "system:"] {
            assert_eq!(told(same, false), same);
        }
    }

    #[test]
    fn passwords_are_removed_and_the_rest_stays() {
        for (url, expected) in [
            ("sqlite:/tmp/a:b@c", "sqlite:/tmp/a:b@c"),
            ("redis://h:6379/0?tokens=redisson", "redis://h:6379/0?tokens=redisson"),
            ("redis://me:secret@h/0", "redis://me@h/0"),
            ("redis://:secret@h", "redis://h"),
            ("redis://me:sec@r,et@h", "redis://me@h"),
            ("redis+sentinel://a,b:1/m/0?sentinel_user=s&sentinel_password=x", "redis+sentinel://a,b:1/m/0?sentinel_user=s"),
            ("redis+sentinel://me:secret@a,b/m?sentinel_password=x&replicas=2", "redis+sentinel://me@a,b/m?replicas=2"),
            (
                "redlock:redis://:x@a,redis://u:y@b,redis://c,max-lease=60s",
                "redlock:redis://a,redis://u@b,redis://c,max-lease=60s",
            ),
            ("config:/etc/locks.toml", "config:/etc/locks.toml"),
        ] {
            assert_eq!(without_passwords(url), expected);
        }
    }
}
