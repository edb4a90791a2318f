# etcdctl as one of the control group: sh -c 'this' URL NAME LEASE_MS. It speaks the lines of verify/src/command/held.rs.
#
# `etcdctl lock NAME COMMAND` holds the lock while the command runs. So the command is what stays inside: it answers `ask`, and `unlock` ends it.
# It knows nothing about the lock but the revision at which it was granted, and there is no way to ask.

# etcdctl gives its command no input.
exec 3<&0
inside='
    printf "{\"locked\":true,\"token\":%s}\n" "$ETCD_LOCK_REV"
    while read -r line <&3; do
        case $line in
            ask) echo "{\"held\":null}" ;;
            *) exit 0 ;;
        esac
    done'

echo '{"ready":true}'
while read -r line <&3; do
    case $line in
        lock)
            if etcdctl --endpoints "$0" lock --ttl "$(($2 / 1000))" "$1" -- sh -c "$inside"; then
                echo '{"unlocked":true}'
            else
                echo "{\"error\":\"etcdctl ended with $?\"}"
            fi
            ;;
        ask) echo '{"held":false}' ;;
        *) echo '{"unlocked":false}' ;;
    esac
done
