# mcd: build, check, test, ship. `make help` lists the targets; each comment ends with what it may touch.
#
# Variables: T=NAME        run the tests whose name has NAME in it (test, test-unit, snap)
#            N=100         how many pulls kill-test kills; how many nodes a fleet has
#            K=7           only every seventh place of the crash matrix; no page is written
#            PROFILE=release  the optimised program (what rpm takes by itself)
#            DESTDIR= PREFIX=/usr  where install puts things

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build
.PHONY: help build initramfs check check-fmt check-clippy check-docs check-generated check-units check-shell \
        check-deny test test-unit kill-test crash-matrix vm-test vm-powercut cluster-test oracle snap demo bench docs man \
        completions install rpm clean tools fleet

T ?=
N ?= 100
K ?= 1
PROFILE ?= debug
PREFIX ?= /usr
DESTDIR ?=

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/mcd
# A CI run starts from a fresh clone: what was compiled before is worth keeping elsewhere.
ifeq ($(CI),true)
ifeq ($(CARGO_TARGET_DIR),)
export CARGO_TARGET_DIR := $(CACHE)/target
endif
endif
TARGET := $(or $(CARGO_TARGET_DIR),target)
BINARY ?= $(TARGET)/$(PROFILE)/mcd
INITRAMFS_BINARY ?= $(TARGET)/initramfs/mcd
CARGO_PROFILE := $(if $(filter release,$(PROFILE)),--release)
CARGO := cargo
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# Tools that are compiled once per version.
CARGO_DENY_VERSION := 0.20.2
TOOLS := $(CACHE)/tools/cargo-deny-$(CARGO_DENY_VERSION)

# Lists the targets. Touches nothing.
help:
	@awk '/^# / { text = substr($$0, 3); next } \
	      /^[a-z-]+:/ { sub(/:.*/, ""); if (text != "") printf "%-16s %s\n", $$0, text } { text = "" }' Makefile

# Compiles. Touches target/, and apt if a library is missing.
build: setup-build
	$(CARGO) build --workspace $(CARGO_PROFILE)

# The small program for the initramfs: no libostree. Touches target/, and apt if a library is missing.
initramfs: setup-build
	$(CARGO) build --profile initramfs --no-default-features --bin mcd

# Touches apt, where something that a step needs is missing.
setup-%:
	@tests/setup.sh $*

# ---- checks: nothing in the tree is changed ---------------------------------------------------

# All the checks below. Touches target/, and apt if a tool is missing.
check: check-fmt check-shell check-clippy check-docs check-generated check-units check-deny

# Format. Touches nothing.
check-fmt:
	$(CARGO) fmt --all --check

# Lints, with all features and as the small program of the initramfs. Touches target/.
check-clippy: setup-build
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --test vm --test cluster -- -D warnings
	$(CARGO) clippy --no-default-features --lib --bins -- -D warnings

# Links and mistakes in the documentation, private items too. Touches target/.
check-docs: setup-build
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --quiet --workspace --no-deps --document-private-items

# Whether docs/man is what the program would write. Touches target/.
check-generated: build
	rm -rf $(TARGET)/generated && mkdir -p $(TARGET)/generated
	$(BINARY) generate man $(TARGET)/generated
	diff -ru docs/man $(TARGET)/generated || { echo "docs/man is out of date: run make man" >&2; exit 1; }

# The units, installed, as systemd reads them. Touches target/ and a temporary folder.
check-units: build setup-check
	tests/units.sh "$(abspath $(BINARY))"

# Shell scripts. Touches nothing.
check-shell: setup-check
	git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck -x

# Licences, sources and banned crates, where cargo-deny is at hand. Touches nothing.
check-deny:
	@if [ -x $(TOOLS)/bin/cargo-deny ]; then PATH=$(TOOLS)/bin:$$PATH; fi; \
	if command -v cargo-deny >/dev/null; then cargo-deny --offline check bans licenses sources; \
	else echo "check-deny: cargo-deny is not here, the supply chain was not checked (make tools: some minutes)" >&2; fi

# Compiles cargo-deny, once per version. Touches the cache folder.
tools:
	[ -x $(TOOLS)/bin/cargo-deny ] || $(CARGO) install --quiet --locked --debug --root $(TOOLS) \
	    --target-dir $(CACHE)/tools/target --version $(CARGO_DENY_VERSION) cargo-deny
	rm -rf $(CACHE)/tools/target

# ---- tests ------------------------------------------------------------------------------------

# All tests, or those that T names. Touches target/, the cache folder, /tmp; apt if something is missing.
test: setup-test
	@# The oracle takes minutes the first time: beside what is compiled here, and with what is left over.
	(nice -n 19 tests/oracle.sh >/dev/null) & \
	result=0; { $(MAKE) --no-print-directory build && $(CARGO) test --workspace -- $(T); } || result=$$?; \
	wait $$!; exit $$result

# The other implementation of the image format, which tests compare with. Touches the cache folder.
oracle: setup-test
	tests/oracle.sh

# Kills N pulls at random points, each followed by fsck and a second run. Touches target/, /tmp.
kill-test: setup-test
	MCD_TEST_KILLS=$(N) $(CARGO) test --test it -- stories::import::killed::root_kill_at_random_points --nocapture

# Kills, or fails, every command at every system call that changes something: an hour. Touches target/, /tmp, docs/crash-matrix.md.
crash-matrix: setup-test build
	MCD_CRASH_STEP=$(K) $(if $(filter 1,$(K)),MCD_CRASH_PAGE=$(CURDIR)/docs/crash-matrix.md) \
	    $(CARGO) test --test it -- stories::crash::matrix --ignored --nocapture

# Real boots in emulated machines, two at a time. Touches target/, the cache folder, /tmp; apt if something is missing.
vm-test: setup-vm
	$(CARGO) test --test vm -- --test-threads=2 $(T)

# The disks that power cuts may leave: the long run, and its page. Touches target/, the cache folder, /tmp, docs/powercut.md.
vm-powercut: setup-vm
	MCD_VM_POWERCUT=docs/powercut.md $(CARGO) test --test vm -- --nocapture power_cut

# The daemon against a real Kubernetes control plane, built once. Touches target/, the cache folder, /tmp; apt if something is missing.
cluster-test: setup-cluster
	$(CARGO) test --test cluster -- $(T)

# A fleet of N nodes against a real API server; without N all numbers of docs/fleet.md, half an hour. Touches target/, the cache folder, /tmp, docs/fleet.*.
fleet: setup-cluster
	$(CARGO) build --package mcd-test-support --bin bench
	tests/bench/fleet.sh $(TARGET)/debug/bench $(if $(filter file,$(origin N)),"50 100 250 500 1000" write,"$(N)")

# Tests without root or network, in under a minute. Touches target/.
test-unit:
	$(CARGO) test --lib --bins -- $(T)

# Accepts what the tests show now; explain it in the commit. Touches the snapshots.
snap:
	INSTA_UPDATE=always $(CARGO) test --workspace -- $(T)

# The story of an update, for real. Touches target/, the cache folder, /tmp; apt if something is missing.
demo: setup-demo build
	tests/demo.sh "$(abspath $(BINARY))"

# Speed against ostree-ext, ROUNDS times (3), for docs/benchmarks. Half an hour. Touches target/, the cache folder, docs/benchmarks.*.
bench: setup-bench
	$(CARGO) build --release --bin mcd
	$(CARGO) build --package mcd-test-support --bin bench
	tests/bench/run.sh $(TARGET)/release/mcd $(TARGET)/debug/bench
	tests/bench/config.sh $(TARGET)/release/mcd $(TARGET)/debug/bench

# ---- what is generated and shipped ------------------------------------------------------------

# The pages of the library. Touches target/.
docs: setup-build
	$(CARGO) doc --workspace --no-deps --document-private-items

# Manual pages, from the command line. Touches docs/man.
man: build
	rm -f docs/man/*.8
	$(BINARY) generate man docs/man

# Shell completions, from the command line. Touches target/completions.
completions: $(BINARY)
	rm -rf $(TARGET)/completions && mkdir -p $(TARGET)/completions
	$(BINARY) generate completions $(TARGET)/completions

$(BINARY):
	$(MAKE) build

$(INITRAMFS_BINARY):
	$(MAKE) initramfs

# The program, its old names, units, the module for dracut, manual pages, completions. Touches DESTDIR.
install: completions $(INITRAMFS_BINARY)
	install -D -m 0755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/mcd
	ln -sf mcd $(DESTDIR)$(PREFIX)/bin/pivot
	install -d $(DESTDIR)$(PREFIX)/libexec
	ln -sf ../bin/mcd $(DESTDIR)$(PREFIX)/libexec/machine-config-daemon
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system systemd/*.service
	ln -sf mcd-pivot.service $(DESTDIR)$(PREFIX)/lib/systemd/system/pivot.service
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system-preset systemd/80-mcd.preset
	install -D -m 0755 -t $(DESTDIR)$(PREFIX)/lib/dracut/modules.d/50mcd dracut/50mcd/module-setup.sh
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/lib/dracut/modules.d/50mcd dracut/50mcd/mcd-initramfs.service
	install -D -m 0755 $(INITRAMFS_BINARY) $(DESTDIR)$(PREFIX)/lib/dracut/modules.d/50mcd/mcd
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/man/man8 docs/man/*.8
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/licenses/mcd LICENSE
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/doc/mcd README.md
	install -D -m 0644 $(TARGET)/completions/mcd.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/mcd
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(TARGET)/completions/_mcd
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d $(TARGET)/completions/mcd.fish

# A binary package of the optimised program. Touches target/.
rpm: setup-check
	$(MAKE) rpm-prebuilt PROFILE=release

# The same, from a program that is built already. Touches target/rpm.
rpm-prebuilt: $(BINARY) $(INITRAMFS_BINARY)
	rm -rf $(TARGET)/rpm
	rpmbuild -bb --quiet --nodeps rpm/mcd.spec \
	    --define "_topdir $(abspath $(TARGET)/rpm)" --define "mcd_tree $(CURDIR)" \
	    --define "mcd_version $(VERSION)" --define "mcd_binary $(abspath $(BINARY))" \
	    --define "mcd_initramfs $(abspath $(INITRAMFS_BINARY))" \
	    --define "mcd_target $(abspath $(TARGET))"
	ls $(TARGET)/rpm/RPMS/*/*.rpm

# Removes what was built. Touches target/.
clean:
	$(CARGO) clean
