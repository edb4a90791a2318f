//! What a driver's or server's error means to a lock user.

use zookeeper_client::Error as Cause;

use crate::error::{Error, ErrorKind};

/// The error of a request that only read: whatever happened, nothing was done.
pub(super) fn of_read(cause: Cause) -> Error {
    let error = of_write(cause);
    match error.kind() {
        ErrorKind::Indeterminate => Error::new(ErrorKind::Unavailable, error.to_string()),
        _ => error,
    }
}

/// The error of a request that may have changed something.
pub(super) fn of_write(cause: Cause) -> Error {
    let (kind, message) = match &cause {
        // What died with its session was not carried out, or is removed with the session's other nodes.
        Cause::SessionExpired | Cause::ClientClosed => {
            (ErrorKind::Unavailable, "the ZooKeeper session has ended; nothing was done".to_owned())
        }
        // The session lives, and so do its holds: the driver takes it back with its next connection.
        Cause::SessionMoved => {
            let message = "the ZooKeeper session has moved to another connection (error -118), so the server refused the request; nothing was \
                           done; try again, and check that no other program uses this session's id";
            (ErrorKind::Unavailable, message.to_owned())
        }
        Cause::NoAuth => {
            let message =
                "ZooKeeper refuses this user: the ACL of the node does not allow it; grant create, read, write and delete (cdrw)";
            (ErrorKind::Denied, message.to_owned())
        }
        Cause::AuthFailed => {
            (ErrorKind::Denied, "ZooKeeper refuses the user or the password; check the URL and the server's JAAS file".to_owned())
        }
        Cause::InvalidAcl => {
            (ErrorKind::Denied, "ZooKeeper does not accept the ACL; ?acl=creator needs a user in the URL, or a client certificate that the server takes for a user".to_owned())
        }
        Cause::NotReadOnly => {
            (ErrorKind::Unavailable, "the server only reads: it has lost its ensemble; nothing was done".to_owned())
        }
        Cause::QuotaExceeded => (ErrorKind::Unavailable, "the quota of the path is used up; nothing was done".to_owned()),
        Cause::Throttled => (ErrorKind::Unavailable, "the server is overloaded and refused the request".to_owned()),
        Cause::Unimplemented => {
            let message = "the server does not know container nodes; ZooKeeper 3.5 or later is needed, without zookeeper.container.disabled";
            (ErrorKind::Config, message.to_owned())
        }
        Cause::NoHosts | Cause::Timeout => (ErrorKind::Unavailable, "no ZooKeeper server could be reached".to_owned()),
        Cause::NoNode | Cause::NodeExists | Cause::BadVersion | Cause::NotEmpty | Cause::NoChildrenForEphemerals => {
            (ErrorKind::Unavailable, format!("others changed the nodes of the lock meanwhile: {cause}"))
        }
        Cause::BadArguments(_) => (ErrorKind::Config, format!("ZooKeeper does not accept the path: {cause}")),
        Cause::UnmarshalError { .. } | Cause::UnexpectedError(_) | Cause::UnexpectedErrorCode(_) | Cause::MarshallingError => {
            (ErrorKind::Protocol, format!("the server's answer is not ZooKeeper's: {cause}; is it a server of another kind?"))
        }
        _ => (ErrorKind::Indeterminate, format!("the connection to ZooKeeper broke before the answer came: {cause}")),
    };
    Error::new(kind, message).with_source(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_moved_is_not_one_that_has_ended() {
        for error in [of_read(Cause::SessionMoved), of_write(Cause::SessionMoved)] {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            let words = error.to_string();
            assert!(
                words.contains("moved to another connection") && words.contains("-118") && !words.contains("ended"),
                "{words}"
            );
        }
        assert!(of_write(Cause::SessionExpired).to_string().contains("ended"));
        assert_eq!(of_write(Cause::ConnectionLoss).kind(), ErrorKind::Indeterminate);
    }
}
