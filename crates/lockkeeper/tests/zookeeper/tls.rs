//! TLS with a real server: certificates of an authority made for the test, checked on both sides.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use lockkeeper::backend::Verdict;
use lockkeeper::store::zookeeper::Config;
use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::server::free_port;
use lockkeeper_testkit::zookeeper::{Release, ZooKeeper};
use tokio::time::timeout;

use crate::site::{self, until};

const SOON: Duration = Duration::from_secs(60);

/// A folder with the files of two authorities; removed with the test.
struct Certificates(PathBuf);

impl Certificates {
    fn make(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("lockkeeper-zookeeper-tls-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("server.names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
        std::fs::write(folder.join("elsewhere.names"), "subjectAltName=DNS:elsewhere.example\n").unwrap();
        std::fs::write(folder.join("client.names"), "extendedKeyUsage=clientAuth\n").unwrap();
        let made = Self(folder);
        for authority in ["ca", "other"] {
            made.openssl(&format!(
                "req -x509 -newkey rsa:2048 -nodes -days 2 -keyout {authority}.key -out {authority}.pem -subj /CN={authority}"
            ));
        }
        for name in ["server", "elsewhere", "client"] {
            made.openssl(&format!("req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"));
            made.openssl(&format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile {name}.names -out {name}.pem"
            ));
            // Java reads key and certificate from one file.
            let both = [".key", ".pem"].map(|end| std::fs::read_to_string(made.file(&format!("{name}{end}"))).unwrap()).concat();
            std::fs::write(made.file(&format!("{name}.store.pem")), both).unwrap();
        }
        made
    }

    fn openssl(&self, arguments: &str) {
        let words = arguments.split_whitespace();
        let done = Command::new("openssl").args(words).current_dir(&self.0).output().expect("openssl runs");
        assert!(done.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// The options of a client that shows its certificate.
    fn identity(&self) -> String {
        format!("&cert={}&key={}", self.file("client.pem"), self.file("client.key"))
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server with a port for TLS beside the plain one.
struct Secured {
    server: ZooKeeper,
    port: u16,
    files: Certificates,
}

impl Secured {
    /// A server that shows this certificate; `ask` is `none` or `need`: whether it asks clients for theirs.
    fn start(test: &str, release: Release, certificate: &str, ask: &str) -> Option<Self> {
        if let Some(why) = release.missing() {
            lockkeeper::conformance::skip(test, &why);
            return None;
        }
        let (files, port) = (Certificates::make(test), free_port());
        let lines = format!(
            "secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.type=PEM\nssl.keyStore.location={}\nssl.trustStore.type=PEM\nssl.trustStore.location={}\nssl.clientAuth={ask}\n\
             authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n",
            files.file(&format!("{certificate}.store.pem")),
            files.file("ca.pem"),
        );
        let server = ZooKeeper::start_as(release, &lines, &[]);
        Some(Self { server, port, files })
    }

    /// The URL of a folder at the port for TLS.
    fn url(&self, host: &str, folder: &str, ca: &str, more: &str) -> String {
        format!("zookeepers://{host}:{}/{folder}?session=6s&ca={}{more}", self.port, self.files.file(ca))
    }
}

/// The error of connecting, which must come long before a session would end.
async fn refused(url: &str) -> lockkeeper::Error {
    let began = Instant::now();
    let error = timeout(SOON, Client::connect(url)).await.expect("told").unwrap_err();
    println!("after {:?}: {error}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(5), "told after {:?}: {error}", began.elapsed());
    error
}

async fn locks_are_handed_over(release: Release, test: &str) {
    let Some(secured) = Secured::start(test, release, "server", "none") else { return };
    let folder = site::fresh_folder(&secured.server).await;
    for host in ["127.0.0.1", "localhost"] {
        let url = secured.url(host, &folder, "ca.pem", "");
        let (ours, rival) = (site::client(&url).await, site::client(&url).await);
        let guard = ours.mutex("m").lock().await.unwrap();
        let before = guard.token().unwrap();
        let waiting = tokio::spawn(async move { rival.mutex("m").lock().await });
        until("the rival waits", async || ours.inspect("m").await.unwrap().is_some_and(|seen| seen.queue.len() == 1)).await;
        guard.release().await.unwrap();
        let next = timeout(SOON, waiting).await.expect("woken").unwrap().unwrap();
        assert!(next.token().unwrap() > before);
        // A client without TLS sees the same lock.
        let plain = site::client(&format!("zookeeper://{}/{folder}?session=6s", secured.server.hosts())).await;
        assert!(plain.mutex("m").try_lock().await.unwrap().is_none());
        next.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_handed_over_with_tls() {
    locks_are_handed_over(Release::Debian, "tls").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_handed_over_with_tls_of_the_newer_release() {
    locks_are_handed_over(Release::Maven, "tls-3.9").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_authority_file_or_port_is_told_at_once_in_words() {
    let Some(secured) = Secured::start("tls-wrong", Release::Debian, "server", "none") else { return };
    let folder = site::fresh_folder(&secured.server).await;
    let plain_port = secured.server.ports()[0];
    let error = refused(&secured.url("127.0.0.1", &folder, "other.pem", "")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("not issued by the authority in ca="), "{error}");
    // The port without TLS, and TLS asked for; and the other way round.
    let ca = secured.files.file("ca.pem");
    let error = refused(&format!("zookeepers://u:secret@127.0.0.1:{plain_port}/{folder}?session=6s&ca={ca}")).await;
    assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
    assert!(error.to_string().contains("does not speak TLS") && error.to_string().contains("secureClientPort"), "{error}");
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    let error = refused(&format!("zookeeper://u:secret@127.0.0.1:{}/{folder}?session=6s", secured.port)).await;
    assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
    assert!(error.to_string().contains("expects TLS") && error.to_string().contains("zookeepers://"), "{error}");
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    // A server that is not there is not said to have trouble with TLS.
    let error = refused(&format!("zookeepers://127.0.0.1:{}/{folder}?session=6s&ca={ca}", free_port())).await;
    assert!(error.kind() == ErrorKind::Unavailable && !error.to_string().contains("TLS"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_another_host_is_refused() {
    let Some(secured) = Secured::start("tls-elsewhere", Release::Debian, "elsewhere", "none") else { return };
    let error = refused(&secured.url("127.0.0.1", "", "ca.pem", "")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("for another name"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_is_a_user_and_its_lack_is_denied() {
    let Some(secured) = Secured::start("tls-client", Release::Debian, "server", "need") else { return };
    let folder = site::fresh_folder(&secured.server).await;
    let url = secured.url("127.0.0.1", &folder, "ca.pem", &format!("{}&acl=creator", secured.files.identity()));
    let ours = site::client(&url).await;
    let guard = ours.mutex("m").lock().await.unwrap();
    // Nobody without the certificate may use what it has made.
    let plain = site::client(&format!("zookeeper://{}/{folder}?session=6s", secured.server.hosts())).await;
    let error = plain.mutex("m").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    guard.release().await.unwrap();
    let found = Client::examine(&url).await.unwrap().findings;
    let about = |what: &str| found.iter().find(|finding| finding.about == what).unwrap_or_else(|| panic!("{what}: {found:?}"));
    assert!(about("user").verdict == Verdict::Fine && about("user").says.contains("CN=client"), "{found:?}");
    assert!(about("ensemble").verdict == Verdict::Fine && about("ensemble").says.contains("standalone"), "{found:?}");
    let error = refused(&secured.url("127.0.0.1", &folder, "ca.pem", "")).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.to_string().contains("?cert=FILE&key=FILE"), "{error}");
}

/// No server is needed: the files are read before anything is sent.
#[tokio::test]
async fn files_that_cannot_be_used_are_named_and_nothing_of_a_key_is_shown() {
    let files = Certificates::make("files");
    let (ca, key) = (files.file("ca.pem"), std::fs::read_to_string(files.file("client.key")).unwrap());
    let inside_key = key.lines().nth(1).unwrap();
    std::fs::write(files.file("empty.pem"), "").unwrap();
    std::fs::write(files.file("broken.pem"), "-----BEGIN CERTIFICATE-----\nno\n").unwrap();
    let file = |name: &str| files.file(name);
    for (options, says) in [
        (format!("ca={}", file("absent.pem")), "absent.pem"),
        (format!("ca={}", files.0.display()), "not a regular file"),
        (format!("ca={}", file("empty.pem")), "there is none"),
        (format!("ca={}", file("broken.pem")), "broken.pem"),
        (format!("ca={ca}&cert={}&key={}", file("client.pem"), file("absent.key")), "absent.key"),
        (format!("ca={ca}&cert={}&key={}", file("client.pem"), file("server.key")), "cert= and the key in key="),
        (format!("ca={ca}&cert={}&key={}", file("client.key"), file("client.key")), "there is none"),
        (format!("ca={ca}&cert={}&key={}", file("client.pem"), file("client.pem")), "private key"),
    ] {
        let error = refused(&format!("zookeepers://127.0.0.1:1?{options}")).await;
        assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
        assert!(error.to_string().contains(says), "{options}: {error}");
        assert!(!format!("{error:?}").contains(inside_key), "{error:?}");
    }
    let error = refused(&format!("zookeepers://a%20b:1?ca={ca}")).await;
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("no certificate can be for"), "{error:?}");
    let config = Config::parse(&format!("zookeepers://u:secret@h/locks?ca={ca}{}", files.identity())).unwrap();
    assert_eq!(format!("{config:?}"), "zookeepers://u@h:2281/locks");
}
