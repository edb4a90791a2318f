//! `-S system:`, one store for all users of the machine: in a mount namespace of its own, with users of a group and one who is not in it.

use std::process::{Command, Stdio};

use crate::util::end;

const UNSHARE: [&str; 3] = ["unshare", "--mount", "sh"];

/// What the scripts share. `/var/lib` is empty and belongs to this test; the program is seen there whatever the rights of its own folder are.
/// `members` is a group without a name, `ann` and `bob` are in it, `eve` is not. `make` is what docs/cli.md tells root to do.
const AROUND: &str = r#"
mount -t tmpfs -o mode=755 none /var/lib || exit 99
mkdir /var/lib/bin && mount --bind "$BIN" /var/lib/bin || exit 99
make() { install -d -o root -g 4242 -m 2770 /var/lib/lockkeeper; }
ann() { setpriv --reuid 4001 --regid 4001 --groups 4242 "$@"; }
bob() { setpriv --reuid 4002 --regid 4002 --groups 4242 "$@"; }
eve() { setpriv --reuid 4003 --regid 4003 --clear-groups "$@"; }
run="/var/lib/bin/lockkeeper run -S system:"
said() { echo "$1: $2"; }
soon() { n=0; until "$@" >/dev/null 2>&1 || [ $n -ge 600 ]; do n=$((n + 1)); sleep 0.05; done; }
"#;

/// What a script prints, with all that is said on stderr; `None` if this user may not do what the test needs.
fn printed(test: &str, script: &str) -> Option<String> {
    let may = Command::new(UNSHARE[0])
        .args(["--mount", "sh", "-c", "mount -t tmpfs none /var/lib && setpriv --reuid 4001 --clear-groups true"])
        .stderr(Stdio::null())
        .status();
    if !may.is_ok_and(|status| status.success()) {
        lockkeeper::conformance::skip(test, "this user cannot mount in a namespace and become other users");
        return None;
    }
    let mut command = Command::new(UNSHARE[0]);
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_lockkeeper")).parent().expect("a folder");
    command.args(&UNSHARE[1..]).args(["-c", &format!("exec 2>&1\n{AROUND}{script}")]).stdin(Stdio::null());
    command.env("BIN", folder).env("HOME", "/nonexistent");
    for variable in ["LOCKKEEPER_STORE", "LOCKKEEPER_CONFIG", "LOCKKEEPER_NAME", "LOCKKEEPER_AROUND", "XDG_STATE_HOME"] {
        command.env_remove(variable);
    }
    let ended = end(&mut command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    Some(ended.stdout)
}

#[test]
fn two_users_of_the_group_exclude_each_other() {
    let script = r#"
make
mkfifo /var/lib/in && chmod 666 /var/lib/in
ann $run job sh -c 'echo "ann holds it"; read -r line' </var/lib/in &
exec 9>/var/lib/in
soon bob /var/lib/bin/lockkeeper show -S system: job
bob $run -n job echo "both"; said "bob does not wait" $?
LOCKKEEPER_STORE=system: bob /var/lib/bin/lockkeeper run -w 60 job echo "bob holds it" & waiter=$!
echo >&9; exec 9>&-
wait $waiter; said "bob waited" $?
stat -c '%a %u %g' /var/lib/lockkeeper/locks.db
"#;
    let Some(printed) = printed("two_users_of_the_group_exclude_each_other", script) else { return };
    let lines: Vec<&str> = printed.lines().collect();
    let [first, refused, status, second, waited, file] = lines[..] else { panic!("{printed}") };
    assert_eq!((first, second), ("ann holds it", "bob holds it"), "{printed}");
    assert!(refused.starts_with("lockkeeper: \"job\" is held by "), "{printed}");
    assert_eq!((status, waited), ("bob does not wait: 1", "bob waited: 0"), "{printed}");
    // It belongs to the group of the directory, and nobody else may read it.
    assert_eq!(file, "660 4001 4242", "{printed}");
}

/// The negative control of the test above: with stores of their own, both users hold a lock of this name.
#[test]
fn users_with_a_store_each_do_not_exclude_each_other() {
    let script = r#"
cd /var/lib
for user in 4001 4002; do install -d -o $user -g $user -m 700 /var/lib/$user; done
mkfifo /var/lib/in && chmod 666 /var/lib/in
ann /var/lib/bin/lockkeeper run -S sqlite:/var/lib/4001/locks.db job sh -c 'read -r line' </var/lib/in & holder=$!
exec 9>/var/lib/in
soon ann /var/lib/bin/lockkeeper show -S sqlite:/var/lib/4001/locks.db job
bob /var/lib/bin/lockkeeper run -S sqlite:/var/lib/4002/locks.db -n job echo both; said "bob does not wait" $?
echo >&9; exec 9>&-
wait $holder; said "ann held it" $?
"#;
    let Some(printed) = printed("users_with_a_store_each_do_not_exclude_each_other", script) else { return };
    assert_eq!(printed, "both\nbob does not wait: 0\nann held it: 0\n");
}

#[test]
fn whoever_could_let_strangers_forge_locks_is_refused() {
    let script = r#"
ann $run job true; said "no directory" $?
ann /var/lib/bin/lockkeeper list -S system:; said "no directory, list" $?
make
ann $run job true; said "member" $?
eve $run job true; said "stranger" $?
chmod o+w /var/lib/lockkeeper
ann $run job true; said "all may write" $?
chmod 0770 /var/lib/lockkeeper; chmod g-s /var/lib/lockkeeper
ann $run job true; said "no set-group-id" $?
chmod 2770 /var/lib/lockkeeper; chown 4001 /var/lib/lockkeeper
bob $run job true; said "of another user" $?
chown root /var/lib/lockkeeper; mv /var/lib/lockkeeper /var/lib/elsewhere; ln -s elsewhere /var/lib/lockkeeper
ann $run job true; said "a link" $?
rm /var/lib/lockkeeper; mv /var/lib/elsewhere /var/lib/lockkeeper
ann $run job true; said "as it was" $?
"#;
    let Some(printed) = printed("whoever_could_let_strangers_forge_locks_is_refused", script) else { return };
    for (what, code, says) in [
        ("no directory", 69, "install -d -o root -g GROUP -m 2770 /var/lib/lockkeeper"),
        ("no directory, list", 69, "system: has no store on this machine yet"),
        ("member", 0, ""),
        ("stranger", 69, "/var/lib/lockkeeper"),
        ("all may write", 69, "can be written by everybody"),
        ("no set-group-id", 69, "chmod g+s /var/lib/lockkeeper"),
        ("of another user", 69, "belongs to another user (uid 4001)"),
        ("a link", 69, "is not a directory, or a link to one"),
        ("as it was", 0, ""),
    ] {
        let (before, _) = printed.split_once(&format!("{what}: {code}\n")).unwrap_or_else(|| panic!("{what}: {printed}"));
        assert!(before.lines().next_back().is_none_or(|line| line.contains(says)), "{what}: {printed}");
    }
}
