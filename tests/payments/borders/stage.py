"""The ground a scenario stands on: a folder, clusters copied from one template, banks, the product."""

import os
import shutil
from pathlib import Path

from clocks import Clocks
from cluster import Cluster
from product import Product
from provider import Bank


class Stage:
    """One scenario's own; everything it starts ends with it."""

    template: Cluster  # initialised and migrated once, stopped; set by the command line
    clocks: Clocks  # set by the command line, too

    def __init__(self, root: Path, name: str, binary: Path, short: bool, failovers: int):
        self.folder = root / name
        self.folder.mkdir()
        # The server's user makes folders of its own here.
        os.chmod(self.folder, 0o777)
        self.short = short
        self.failovers = failovers
        self.product = Product(binary, self.folder)
        self.clusters: list[Cluster] = []
        self.banks: list[Bank] = []

    def own(self, cluster: Cluster) -> Cluster:
        """To be ended with the stage."""
        self.clusters.append(cluster)
        return cluster

    def primary(self) -> Cluster:
        """A running copy of the template."""
        return self.own(self.template.copy_to(self.folder / "primary")).start()

    def standby(self, primary: Cluster, name: str = "standby", port: int | None = None) -> Cluster:
        """A running standby of it."""
        return self.own(primary.standby(self.folder / name, port))

    def bank(self, name: str = "bank", key_lifetime_seconds: float = 86_400) -> Bank:
        """A provider with an empty record."""
        bank = Bank(self.folder, name, key_lifetime_seconds)
        self.banks.append(bank)
        return bank

    def end(self) -> None:
        """Stop everything; the data directories go, logs and records stay until the folder goes."""
        self.product.end()
        for bank in self.banks:
            bank.close()
        for cluster in self.clusters:
            cluster.kill()
            shutil.rmtree(cluster.folder, ignore_errors=True)


def hosts_url(login: str, *clusters: Cluster) -> str:
    """A URL with several hosts, of which the writable one is wanted."""
    hosts = ",".join(f"127.0.0.1:{cluster.port}" for cluster in clusters)
    return f"postgres://{login}@{hosts}/app?target_session_attrs=read-write"
