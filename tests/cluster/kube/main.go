// The whole control plane of a Kubernetes cluster, and kubectl, in one program: for tests only.
//
// The first argument says which part runs: apiserver, controller-manager, scheduler or kubectl; the rest are that part's own
// arguments. There is no package of these programs where the tests run, and one program is a third of the size of four.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var parts = map[string]func() *cobra.Command{
	"apiserver":          apiserver.NewAPIServerCommand,
	"controller-manager": controllers.NewControllerManagerCommand,
	"scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":            kubectl.NewDefaultKubectlCommand,
}

func main() {
	if len(os.Args) < 2 || parts[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: kube apiserver|controller-manager|scheduler|kubectl ARGUMENT…")
		os.Exit(2)
	}
	part := parts[os.Args[1]]
	// Each part reads os.Args by itself, and names itself after its first word.
	os.Args = os.Args[1:]
	os.Exit(cli.Run(part()))
}
