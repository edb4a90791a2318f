// etcd's own Go client as a contestant of the benchmarks: `concurrency.Mutex`, or with as=rpc the server's Lock service. Each task has a session of
// its own: two tasks with one session are one holder to etcd.
package main

import (
	"context"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"lockkeeper/bench/peers/course"
)

type mutex struct{ mutex *concurrency.Mutex }

func (m mutex) Take() (func(), error) {
	if err := m.mutex.Lock(context.Background()); err != nil {
		return nil, err
	}
	return func() { course.Must(m.mutex.Unlock(context.Background())) }, nil
}

// rpc asks the server for the lock. The messages of that service are part of the server's module, not of the client's, so these are ours.
type rpc struct {
	client *clientv3.Client
	name   string
	lease  clientv3.LeaseID
}

func (r rpc) Take() (func(), error) {
	granted := new(lockResponse)
	asked := &lockRequest{Name: []byte(r.name), Lease: int64(r.lease)}
	if err := r.client.ActiveConnection().Invoke(context.Background(), "/v3lockpb.Lock/Lock", asked, granted); err != nil {
		return nil, err
	}
	return func() {
		key := &unlockRequest{Key: granted.Key}
		course.Must(r.client.ActiveConnection().Invoke(context.Background(), "/v3lockpb.Lock/Unlock", key, new(unlockResponse)))
	}, nil
}

func main() {
	order := course.ReadOrder()
	endpoint := strings.TrimPrefix(order.Addresses()[0], "etcd://")
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second})
	course.Must(err)
	course.Race(order, func(name string) course.Lock {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(30))
		course.Must(err)
		if order.Text("as") == "rpc" {
			return rpc{client, name, session.Lease()}
		}
		return mutex{concurrency.NewMutex(session, name)}
	})
}
