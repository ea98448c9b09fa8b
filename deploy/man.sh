#!/bin/sh
# Writes sublet.1, subletd.8 and subletd.conf.5 into a folder. Options, variables and keys come from the help of the built
# programs. The pages name the folder of the documentation, which explains at length.
#
# Each further program that is named gets a page too.
#
#   man.sh SUBLET SUBLETD DOCUMENTATION FOLDER [PROGRAM...]
set -eu
sublet=$1 subletd=$2 documentation=$3 folder=$4
shift 4

escape() { sed 's/\\/\\e/g; s/-/\\-/g; s/^\([.'\'']\)/\\\&\1/'; }

title() { # NAME SECTION LINE
        printf '.TH %s %s "" "%s"\n.SH NAME\n%s \\- %s\n' "$(echo "$1" | tr a-z A-Z)" "$2" \
                "$("$sublet" --version)" "$1" "$3"
}

# Turns options into paragraphs: lines "  --name NAME   text", or with the text on the next line.
options() {
        awk '/^  -/ { line = substr($0, 3); i = match(line, /   *[^ ]/)
                      print ".TP\n.B " (i ? substr(line, 1, i - 1) : line)
                      if (i) print substr(line, i + RLENGTH - 1); next }
             /^   / { sub(/^ +/, ""); print }' | sed 's/^\(\.B \)--/\1\\-\\-/'
}

# Turns the rows "  name text" under this heading of subletd's help into paragraphs.
rows() { # HEADING
        "$subletd" --help | sed -n "/^$1/,/^\$/p" | sed '/^  /!d; s/^  \([A-Za-z_]*\) */.TP\n.B \1\n/' | escape | sed 's/^\\&\././'
}

# Turns pairs of lines, a command and what it does, into examples.
examples() {
        escape | sed 'N; s/\(.*\)\n\(.*\)/.PP\n\2:\n.PP\n.RS 4\n.EX\n\1\n.EE\n.RE/'
}

{
        title sublet 1 'programs share an NVIDIA GPU, each with all of its memory'
        cat <<-'END'
		.SH SYNOPSIS
		.B sublet
		.I command
		.RI [ argument ...]
		.SH DESCRIPTION
		Programs that are started by
		.B sublet run
		share one NVIDIA GPU. Each of them sees and uses the whole GPU memory, with no change to its code.
		.PP
		Programs that fit together run together. Programs that do not fit take turns: memory of the others moves to host memory, in bulk,
		and is back at the same addresses before its program runs again.
		.PP
		A daemon decides who runs:
		.BR subletd (8)
		of the machine, or else a private one, which the first program starts for its user.
		.PP
		With
		.BR \-\-sim ,
		a command uses a simulated GPU that runs on the CPU.
		.SH OPTIONS
	END
        for command in $("$sublet" help | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p'); do
                "$sublet" help "$command" | sed -n '1s/^usage: \(.*\)/.SS "\1"/p; 2s/$/./p' | sed 's/-/\\-/g'
                "$sublet" help "$command" | sed 1,2d | escape | sed 's/^  \\-\\-/  --/' | options
        done
        "$sublet" bench pairs --help | sed -n '1s/^usage: \(.*\)/.SS "\1"/p; 2s/$/./p' | sed 's/-/\\-/g'
        "$sublet" bench pairs --help | sed 1,2d | escape | sed 's/^  \\-\\-/  --/' | options
        printf '.SH EXAMPLES\n'
        examples <<-'END'
		sublet run -- python train.py
		Run a program so that it shares the GPU
		sublet demo
		See two programs share a GPU that is too small for both, also on a machine without a GPU
		sublet bench --plot bench.svg
		Measure two programs alone, one after the other and together
		sublet pair --gpus 4 --qos 0.7 jobs/*.json
		Say which measured jobs go well together on four GPUs
		sublet status --watch
		See each second which program runs, and which one waits
		eval "$(sublet env)"
		Let all programs of a shell share the GPU
		sublet pause 4711
		Stop a program on the GPU, in the middle of a kernel
	END
        printf '.SH ENVIRONMENT\n'
        "$sublet" help variables | sed '1d; /(.*test builds)/,/^$/d' | escape |
                sed -n '/^SUBLET/{N; s/^\([A-Z_]*\) ([^)]*): \(.*\)\n  \(.*\)/.TP\n.B \1\n\2: \3/p}'
        cat <<-END
		.SH FILES
		.TP
		.I /run/sublet
		The sockets of the machine's daemon. While they exist, programs start no private daemon.
		.TP
		.I \$XDG_RUNTIME_DIR/sublet
		The sockets of a user's private daemon, and its log
		.RI ( subletd.log ).
		Without XDG_RUNTIME_DIR:
		.I /run/user/UID/sublet
		or
		.IR /tmp/sublet\-UID .
		.TP
		.I \$XDG_CONFIG_HOME/sublet/subletd.conf
		Settings of a private daemon:
		.BR subletd.conf (5).
		Without XDG_CONFIG_HOME: in
		.IR ~/.config .
		.SH EXIT STATUS
		0; 1 when it could not be done; 2 when it was asked wrongly. sublet run: 125 when parts of sublet are missing, 126 when the
		program cannot be executed, 127 when there is none, else what the program answers.
		.SH SEE ALSO
		.BR subletd (8),
		.BR subletd.conf (5),
		.BR nvidia\-smi (1)
		.PP
		.I $documentation/docs/operations.md
		explains what status shows, and
		.I $documentation/docs/messages.md
		every message.
	END
} >"$folder/sublet.1"

{
        title subletd 8 "$("$subletd" --help | sed -n '/^Shares/,/^$/p' | tr '\n' ' ' | sed 's/ *$//; s/\.$//; s/^S/s/; s/:.*//')"
        cat <<-'END'
		.SH SYNOPSIS
		.B subletd
		.RI [ option ...]
		.SH DESCRIPTION
		The daemon keeps the ledger of each GPU's memory and decides which programs may run. It serves programs that were started by
		.BR sublet (1).
		.PP
		As the service
		.I subletd.service
		it serves all users of the machine, in /run/sublet. systemd makes its sockets and starts it. A restart is harmless: programs run on,
		and register with the next daemon. Without the service, the first program starts a private daemon for its user.
		.PP
		The daemon takes its listening sockets from the service manager if there are some
		.RB ( sd_listen_fds (3)),
		and reports its readiness and, with a watchdog, its running loop
		.RB ( sd_notify (3)).
		.PP
		SIGTERM, SIGINT and SIGQUIT end the daemon; SIGHUP lets it read its settings again.
		.SH OPTIONS
	END
        "$subletd" --help | sed -n '/^  --/,/^$/p' | sed '/^$/,$d' | escape | sed 's/^  \\-\\-/  --/' | options
        printf '.SH EXAMPLES\n'
        examples <<-'END'
		systemctl enable --now subletd
		Let one daemon serve all users of the machine
		journalctl -u subletd
		Read its log
		subletd --shared --group gpu --dir /srv/sublet
		Serve a group without being root; its members set SUBLET_DIR=/srv/sublet
	END
        printf '.SH ENVIRONMENT\n'
        rows Variables
        cat <<-'END'
		.TP
		.BR LISTEN_FDS ", " NOTIFY_SOCKET ", " WATCHDOG_USEC
		set by systemd
		.SH FILES
		.TP
		.I /etc/sublet/subletd.conf
		.TQ
		.I /etc/sublet/subletd.conf.d/*.conf
		Settings of the daemon in /run/sublet:
		.BR subletd.conf (5).
		.TP
		.I /run/sublet
		.BR client.sock " (programs), " status.sock " (status for all users), " control.sock
		(orders of root), the lock, and what the next daemon must know after a crash.
		.SH EXIT STATUS
	END
        "$subletd" --help | sed -n 's/^Exit status: //p' | escape
        cat <<-END
		.SH SEE ALSO
		.BR sublet (1),
		.BR subletd.conf (5),
		.BR systemd.socket (5)
		.PP
		.I $documentation/docs/operations.md
	END
} >"$folder/subletd.8"

{
        title subletd.conf 5 'settings of subletd, and classes of programs'
        cat <<-'END'
		.SH SYNOPSIS
		.I /etc/sublet/subletd.conf
		.br
		.I ~/.config/sublet/subletd.conf
		.SH DESCRIPTION
		The file has sections such as [daemon], and "key = value" lines below them. A line that begins with # or ; is a comment. The daemon
		accepts no file in part: after an error, whose message names file and line, it does not start. While it runs,
		.B sublet reload
		lets it read the files again.
		.PP
		Sizes are written like 512MiB or 20GiB, durations like 250ms, 5s or 2min, shares like 5%. A number without a unit is refused, except 0.
		.SH OPTIONS
		.SS Under [daemon]
	END
        rows Settings
        cat <<-'END'
		.SS Under [class NAME]
		A class is a set of programs for which the owner states what they get. A program belongs to the first class of which all given kinds
		of user, name, cgroup, pod and slurm_job match. The keys from maximum on also stand under [default], for programs in no class.
	END
        rows Classes
        cat <<-'END'
		.SS Under [pod UID]
		What people call a Kubernetes pod. A device plugin writes it.
	END
        rows "What people"
        cat <<-'END'
		.SH EXAMPLES
		.EX
		[daemon]
		quantum = 2s
		
		[class training]
		user = alice, bob, 2000\-2999
		name = train*
		minimum = 40%
		memory_cap = 60GiB
		.EE
		.SH FILES
		.TP
		.I /etc/sublet/subletd.conf
		The machine's daemon, in /run/sublet.
		.TP
		.I $XDG_CONFIG_HOME/sublet/subletd.conf
		A private daemon, and any other that is not root's. Without XDG_CONFIG_HOME: in
		.IR ~/.config .
		.TP
		.I subletd.conf.d/*.conf
		Beside the file: more files, which are read after it in the order of their names. A later line overrides an earlier one.
		.TP
		.I /run/sublet/conf.d/*.conf
		In the daemon's own directory: files of a device plugin and of Slurm's plugin, which are read last.
		.TP
		.IR /var/lib/subletd , " $XDG_STATE_HOME/sublet"
		The last good configuration, which holds while the files have a mistake; the second one is of any daemon but the machine's.
	END
        cat <<-END
		.TP
		.I $documentation/deploy/subletd.conf
		A sample with every key and its default, as comments.
		.SH SEE ALSO
		.BR subletd (8),
		.BR sublet (1)
		.PP
		.I $documentation/docs/configuration.md
	END
} >"$folder/subletd.conf.5"

device_plugin() { # PROGRAM
        title sublet-device-plugin 8 'offers the GPUs of a Kubernetes node to its pods, each GPU several times'
        cat <<-'END'
		.SH SYNOPSIS
		.B sublet\-device\-plugin
		.RI [ option ...]
		.SH DESCRIPTION
		The device plugin runs on each node of a Kubernetes cluster that has GPUs, beside
		.BR subletd (8).
		It registers the resource sublet.dev/gpu with kubelet, and again whenever kubelet restarts. Pods that ask for the resource share the
		node's GPUs, each of them with all of the GPU's memory.
		.SS Devices
		Each GPU, or MIG instance, that the daemon lists is offered as many devices, with the ids UUID::0, UUID::1 and so on. They are
		unhealthy when the daemon does not answer for 3 seconds, when NVML does not list the GPU or has no figures of it for 10 seconds, and
		while a control daemon of MPS serves the GPU: sublet and MPS cannot share one.
		.PP
		Of several devices that a container asks for, each is of another GPU while there are such. Beyond that GPUs are given twice; then the
		container sees each of them once, so it gets fewer GPUs than it asked for devices.
		.PP
		The load of a GPU is what its programs may allocate, and the whole of its memory for each program that waits. A device that is given
		out and has no program yet counts as a tenth of the memory.
		.SS What a container gets
		The library as /usr/lib/sublet/libsublet.so, the daemon's folder public as /run/sublet, both read\-only; SUBLET_DIR; and its GPUs. With
		.B \-\-inject preload\-file
		a file over /etc/ld.so.preload names the library, and hides a file of the image there. The C library musl ignores it. With
		.B \-\-inject environment
		LD_PRELOAD names the library; images that clear it lose the library, and programs with musl do not start. SUBLET_INJECTED says which
		of both it is.
		.PP
		With
		.B \-\-gpu\-access devices
		the image must have the driver's libraries. MIG instances need one of the other ways.
		.SS Pods
		The plugin lists and watches the pods of its node: its service account may get, list and watch pods, and create events, and needs nothing else. It
		writes them into conf.d/50\-kubernetes.conf in the daemon's directory, and lets the daemon read the file. Before a container starts
		it lists the pods anew, so that the daemon knows the pod before its first program. If that takes 5 seconds, the container starts all
		the same.
		.PP
		These annotations of a pod become a class of the daemon:
		.TP
		.B sublet.dev/minimum, sublet.dev/maximum
		shares of the time, such as 30% or 0.3
		.TP
		.B sublet.dev/memory\-cap
		the most memory that its programs may allocate on a GPU, such as 20Gi
		.TP
		.B sublet.dev/memory\-request
		becomes the minimum if there is none: this part of the node's smallest GPU, of 95 % of the time
		.TP
		.B sublet.dev/priority
		a number from \-20 to 20
		.TP
		.B sublet.dev/weight
		its part of the time compared with others, from 0.01 to 100
		.TP
		.B sublet.dev/group
		pods of a namespace with the same word run together, as one. Of each annotation, the oldest pod's counts. 25 pods and more are
		several groups.
		.PP
		The node's owner bounds minima, priorities and weights. Values that are no good are left out, with a line in the log. If all minima together
		are more than the daemon can promise, the newest pods go without theirs, until there is room.
		.SH OPTIONS
	END
        "$1" --help | sed -n '/^  --/,/^$/p' | sed '/^$/,$d' | escape | sed 's/^  \\-\\-/  --/' | options
        printf '.SH EXAMPLES\n'
        examples <<-'END'
		sublet-device-plugin --node $(hostname) --gpu-access cdi --place pack
		Fill a GPU before the next one is used, on a node whose container runtime knows CDI
	END
        printf '.SH ENVIRONMENT\n'
        "$1" --help | sed -n '/^Variables/,/^$/p' | escape | sed -n 's/^  \([A-Z_]*\)  *\(.*\)/.TP\n.B \1\n\2/p'
        cat <<-END
		.SH EXIT STATUS
		0 after SIGTERM or SIGINT, 1 if it cannot go on, 2 when it was started wrongly.
		.SH FILES
		.TP
		.I /var/lib/kubelet/device\-plugins/kubelet.sock
		Where the plugin registers.
		.TP
		.I /run/sublet/conf.d/50\-kubernetes.conf
		The node's pods, for the daemon.
		.TP
		.I /var/run/secrets/kubernetes.io/serviceaccount
		Token and authority of the API server. The token is read again for each request.
		.SH SEE ALSO
		.BR subletd (8),
		.BR subletd.conf (5)
		.PP
		.I $documentation/docs/configuration.md
		explains classes, and
		.I $documentation/docs/messages.md
		every message.
	END
}

webhook() { # PROGRAM
        title sublet-webhook 8 'lets pods of Kubernetes share GPUs that they ask for'
        cat <<-'END'
		.SH SYNOPSIS
		.B sublet\-webhook
		.BI \-\-certificate " FILE"
		.BI \-\-key " FILE"
		.RI [ option ...]
		.SH DESCRIPTION
		Kubernetes' API server asks the webhook about each new pod, and the webhook answers with a patch. Where a container asks for
		nvidia.com/gpu, it asks for sublet.dev/gpu after that, in the same number. Everything else stays. Words of others for a part of
		a GPU become annotations of sublet:
		.I kubernetes\-words.md
		has them.
		.PP
		The webhook never refuses a pod. What it cannot do stands in a warning. A certificate that was renewed is shown to the next
		client. SIGTERM and SIGINT let no new client in, and end the webhook after open requests. The API server may choose an
		ending webhook for some seconds more, so
		.B \-\-linger
		keeps the door open for a while.
		.SH PATHS
		.TP
		.B /mutate
		Reviews (POST, admission.k8s.io/v1 and v1beta1). Changed are pods with the label or annotation
		.BR "sublet.dev/share: \(dqtrue\(dq" .
		.TP
		.B /mutate\-all
		The same, for namespaces that opted in: changed are all pods without
		.BR "sublet.dev/share: \(dqfalse\(dq" .
		.TP
		.BR /healthz ", " /readyz
		Probes (GET).
		.SH OPTIONS
	END
        "$1" --help | sed -n '/^  --/,/^$/p' | sed '/^$/,$d' | escape | sed 's/^  \\-\\-/  --/' | options
        printf '.SH EXAMPLES\n'
        examples <<-'END'
		sublet-webhook --certificate /tls/tls.crt --key /tls/tls.key --listen :8443
		Serve with the certificate of a Secret that is mounted at /tls
	END
        cat <<-'END'
		.SH LIMITS
		A review has at most 3 MiB. At most 256 clients are connected; more of them wait. A request that is not complete after 10 s is
		ended, and so is a connection that was idle for 120 s.
		.SH EXIT STATUS
	END
        "$1" --help | sed -n 's/^Exit status: //p' | escape
        cat <<-END
		.SH SEE ALSO
		.BR subletd (8),
		.BR subletd.conf (5)
		.PP
		.I $documentation/docs/kubernetes\-words.md
	END
}

extender() { # PROGRAM
        title sublet-extender 8 "tells Kubernetes' scheduler where a job goes well beside others"
        cat <<-'END'
		.SH SYNOPSIS
		.B sublet\-extender
		.BI \-\-jobs " DIR"
		.RB [ \-\-model
		.IR FILE ]
		.RI [ option ...]
		.SH DESCRIPTION
		Kubernetes' scheduler asks the extender about each pod that wants a shared GPU. A pod names the file of its measured job by the
		annotation
		.BR sublet.dev/job ,
		and the least part of its progress alone that it is to keep by
		.B sublet.dev/qos
		(0.7 or 70%). The extender lets the nodes pass on which the pod finds a GPU alone, or beside one running job so that both are
		predicted to keep their bounds. Of these nodes it prefers those where all jobs together are predicted to make the most
		progress.
		.PP
		Pods without the annotation pass everywhere. The extender reads pods and nodes from the API server, and writes nothing. If it does
		not answer, a scheduler with
		.B ignorable: true
		goes on by itself.
		.SH PATHS
		.TP
		.BR /filter ", " /prioritize
		Requests (POST) of the scheduler's extender protocol, v1, with NodeNames or with Nodes.
		.TP
		.BR /healthz ", " /readyz
		Probes (GET). The extender is ready once it knows the cluster's pods and nodes.
		.SH OPTIONS
	END
        "$1" --help | sed -n '/^  --/,/^$/p' | sed '/^$/,$d' | escape | sed 's/^  \\-\\-/  --/' | options
        printf '.SH EXAMPLES\n'
        examples <<-'END'
		sublet-extender --jobs /jobs --model /model/model.json --certificate /tls/tls.crt --key /tls/tls.key
		Serve HTTPS at port 8444, with the job files of a ConfigMap that is mounted at /jobs
		sublet-extender --jobs /jobs --model /model/model.json --listen 127.0.0.1:8444 --prefer spread --qos 0.8
		Serve HTTP to a scheduler in the same pod; free GPUs come before pairs, and each job keeps 80 %
	END
        cat <<-'END'
		.SH LIMITS
		One extender predicts for one kind of card. It knows at most 1000 job files, and two measured jobs share a GPU at most. Which GPU
		of a node a pod gets is kubelet's choice. A request has at most 16 MiB. At most 256 clients are connected; more of them wait.
		.SH EXIT STATUS
	END
        "$1" --help | sed -n 's/^Exit status: //p' | escape
        cat <<-END
		.SH SEE ALSO
		.BR sublet (1),
		.BR sublet-device-plugin (8)
		.PP
		.I $documentation/docs/kubernetes.md
		has the manifests.
	END
}

for program in "$@"; do
        case ${program##*/} in
        sublet-device-plugin) device_plugin "$program" >"$folder/sublet-device-plugin.8" ;;
        sublet-webhook) webhook "$program" >"$folder/sublet-webhook.8" ;;
        sublet-extender) extender "$program" >"$folder/sublet-extender.8" ;;
        *)
                echo "man.sh: no page for $program" >&2
                exit 1
                ;;
        esac
done
