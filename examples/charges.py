"""Two programs in one ledger: Opacus trains a classifier, and OpenDP counts.

    python examples/charges.py DATASET

The data is made up here; in earnest it is the dataset's own. Both need `pip install opacus opendp`.
"""

import hashlib
import sys

import exchequer

TERMS = {"unit": "record", "relation": "add-remove"}


def train(dataset, runner=None):
    """Train on made-up features, and settle by the history of Opacus."""
    import opacus
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    features = torch.randn(200, 4)
    data = TensorDataset(features, (features.sum(1) > 0).long())
    model = torch.nn.Linear(4, 2)
    engine = opacus.PrivacyEngine(accountant="rdp")
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=20),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
    )
    event = exchequer.dp_sgd(q=loader.sample_rate, sigma=2.0, steps=3 * len(loader))
    tool = f"opacus {opacus.__version__}"
    with dataset.charge(event, tool=tool, purpose="a classifier", runner=runner, **TERMS) as run:
        step = 0
        for _ in range(2):  # of three epochs that were reserved
            for inputs, labels in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs), labels).backward()
                optimizer.step()
                step += 1
                run.alive(step)
        weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
        output = hashlib.sha256(weights).hexdigest()
        return run.settle(history=engine.accountant.history, output=output)


def count(dataset):
    """Answer one count."""
    import opendp
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    query = space >> dp.t.then_count() >> dp.m.then_laplace(scale=10.0)
    tool = f"opendp {getattr(opendp, '__version__', '')}".strip()
    event = exchequer.opendp(query, d_in=1)
    with dataset.charge(event, tool=tool, purpose="how many records", **TERMS) as run:
        print("about", query(list(range(200))), "records")
        return run.settle()


if __name__ == "__main__":
    with exchequer.connect() as client:
        chosen = client.dataset(sys.argv[1])
        for charged in (train(chosen), count(chosen)):
            print(charged)
