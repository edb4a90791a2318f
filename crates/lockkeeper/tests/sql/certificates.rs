//! Certificates made for a test: an authority, a server that it vouches for, and another authority.

use std::path::Path;
use std::process::Command;

/// Writes `ca.pem`, `server.pem` and `server.key` (for `localhost`), and `other.pem`.
pub(crate) fn create(directory: &Path) {
    let openssl = |arguments: &str| {
        let done = Command::new("openssl").args(arguments.split(' ')).current_dir(directory).output().expect("openssl runs");
        assert!(done.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&done.stderr));
    };
    openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -keyout ca.key -out ca.pem -subj /CN=lockkeeper-test-ca");
    openssl("req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost");
    std::fs::write(directory.join("names"), "subjectAltName=DNS:localhost\n").unwrap();
    openssl("x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem");
    openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -keyout other.key -out other.pem -subj /CN=another-ca");
}
