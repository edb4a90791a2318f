//! TLS with a real server: certificates of an authority made for the test, checked on both sides.

use std::path::{Path, PathBuf};
use std::process::Command;

use lockkeeper::backend::Verdict;
use lockkeeper::{Client, ErrorKind};
use lockkeeper_testkit::etcd::Etcd;
use lockkeeper_testkit::poll::async_until_within;

use crate::bench::{LONG, client, own, shared};

/// A folder with the files of two authorities; removed with the test.
struct Certificates(PathBuf);

impl Certificates {
    fn make(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("lockkeeper-etcd-tls-{}-{test}", std::process::id()));
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
        for (name, authority) in [("server", "ca"), ("elsewhere", "ca"), ("client", "ca")] {
            made.openssl(&format!("req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"));
            made.openssl(&format!(
                "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -days 2 \
                 -extfile {name}.names -out {name}.pem"
            ));
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

    /// A server that shows this certificate.
    fn server(&self, test: &str, name: &str, more: &[&str]) -> Option<Etcd> {
        let (certificate, key) = (
            format!("--cert-file={}", self.file(&format!("{name}.pem"))),
            format!("--key-file={}", self.file(&format!("{name}.key"))),
        );
        own(test, 1, &[&[certificate.as_str(), &key][..], more].concat())
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn url(server: &Etcd, host: &str, ca: &Path, more: &str) -> String {
    format!("etcds://{host}:{}?session=4s&ca={}{more}", server.port(0), ca.display())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_the_named_authority_is_trusted_and_no_other() {
    let certificates = Certificates::make("server");
    let Some(server) = certificates.server("TLS", "server", &[]) else { return };
    let (ca, other) = (certificates.0.join("ca.pem"), certificates.0.join("other.pem"));
    // The port is open a moment before the server serves.
    async_until_within(LONG, "the server serves", || async { Client::connect(url(&server, "127.0.0.1", &ca, "")).await.is_ok() })
        .await;
    for host in ["127.0.0.1", "localhost"] {
        let (ours, rival) = (client(&url(&server, host, &ca, "")).await, client(&url(&server, host, &ca, "")).await);
        let guard = ours.mutex("m").lock().await.unwrap();
        let waiting = tokio::spawn(async move { rival.mutex("m").lock().await });
        let waits = || async { ours.inspect("m").await.unwrap().is_some_and(|seen| seen.queue.len() == 1) };
        async_until_within(LONG, "the rival waits", waits).await;
        guard.release().await.unwrap();
        tokio::time::timeout(LONG, waiting).await.expect("woken").unwrap().unwrap().release().await.unwrap();
    }
    let error = Client::connect(url(&server, "127.0.0.1", &other, "")).await.unwrap_err();
    println!("another authority: {error}");
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Config), "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");
    let error = Client::connect(url(&server, "127.0.0.1", &certificates.0.join("absent.pem"), "")).await.unwrap_err();
    println!("no file: {error}");
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("absent.pem"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_on_one_side_only_is_told_in_words() {
    let certificates = Certificates::make("one-side");
    let ca = certificates.0.join("ca.pem");
    let (Some(secured), Some(plain)) = (certificates.server("TLS", "server", &[]), shared("TLS")) else { return };
    async_until_within(LONG, "the server serves", || async {
        Client::connect(url(&secured, "127.0.0.1", &ca, "")).await.is_ok()
    })
    .await;
    let without = format!("etcd://u:secret@127.0.0.1:{}?session=4s", secured.port(0));
    let with = format!("etcds://u:secret@127.0.0.1:{}?session=4s&ca={}", plain.port(0), ca.display());
    for (url, says) in [
        (&without, ["expects TLS on this port", "write etcds:// and ?ca=FILE"]),
        (&with, ["does not speak TLS on this port", "write etcd:// instead of etcds://"]),
    ] {
        let error = Client::connect(url).await.unwrap_err();
        println!("{error}");
        assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
        assert!(says.iter().all(|says| error.to_string().contains(says)), "{error}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        // `doctor` says the same.
        let found = Client::examine(url).await.unwrap().findings;
        assert!(
            found.iter().any(|found| found.verdict == Verdict::Unfit(ErrorKind::Config) && found.says.contains(says[0])),
            "{found:?}"
        );
    }
    // A server that is not there is not said to have trouble with TLS.
    let error = Client::connect(format!("etcds://127.0.0.1:1?ca={}", ca.display())).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && !error.to_string().contains("TLS"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_host_is_refused() {
    let certificates = Certificates::make("elsewhere");
    let Some(server) = certificates.server("TLS", "elsewhere", &[]) else { return };
    let error = Client::connect(url(&server, "127.0.0.1", &certificates.0.join("ca.pem"), "")).await.unwrap_err();
    println!("another host: {error}");
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_certificates_gets_ours() {
    let certificates = Certificates::make("client");
    let ca = certificates.0.join("ca.pem");
    let trusted = format!("--trusted-ca-file={}", ca.display());
    let Some(server) = certificates.server("TLS", "server", &["--client-cert-auth", &trusted]) else { return };
    let own = format!("&cert={}&key={}", certificates.file("client.pem"), certificates.file("client.key"));
    async_until_within(LONG, "the server serves", || async {
        Client::connect(url(&server, "127.0.0.1", &ca, &own)).await.is_ok()
    })
    .await;
    let ours = client(&url(&server, "127.0.0.1", &ca, &own)).await;
    ours.mutex("m").lock().await.unwrap().release().await.unwrap();
    let error = Client::connect(url(&server, "127.0.0.1", &ca, "")).await.unwrap_err();
    println!("no certificate: {error}");
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Denied), "{error:?}");
}
